"""The artifact: what extraction found, kept on disk under a hash of what it was made from.

Here is the format, the cache key and the loading of engines from it. Making one is `extract`,
finding a model's files is `source`.
"""

import hashlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import orjson

from tokenizer_pool import requests
from tokenizer_pool.chat import Chat, ChatTemplate, NeedsReference
from tokenizer_pool.eligibility import COUNTS_TOOL_CALLS, Ineligible
from tokenizer_pool.engines import EncodeEngine, FastEncoder, ReferenceEncoder
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.model import Model
from tokenizer_pool.templates import FastTemplate, ReferenceTemplate, template_wants_parts
from tokenizer_pool.types import Kind, ModelReport

# Raise it when the artifact's meaning or the corpus changes: old ones are then made anew.
_FORMAT: Final = 1
_ENGINES: Final = ("transformers", "tokenizers", "fastokens", "jinja2", "minijinja")
_SOURCES: Final = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model",
    "tekken.json", "chat_template.json", "chat_template.jinja",
)  # fmt: skip
_REHEARSAL: Final = {
    Kind.CHAT: b'{"messages": [{"role": "user", "content": "Hello, world!"}]}',
    Kind.COMPLETION: b'{"prompt": "Hello, world!"}',
}
_GLOBS: Final = ("additional_chat_templates/*.jinja", "*.tiktoken", "tokenizer.model.v*")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A tokenizer's facts, beside its `tokenizer.json`. Barriers say why ids cannot travel."""

    vocabulary: int
    model_type: str | None
    templates: dict[str, str]
    special_tokens: dict[str, str]
    fast_encoder: bool
    fast_template: bool
    fast_floats: bool
    notes: tuple[str, ...]
    chat_barrier: str | None = None
    completion_barrier: str | None = None

    @property
    def fast(self) -> bool:
        """Both fast engines serve: requests may be prepared on the event loop."""
        return self.fast_encoder and (self.fast_template or not self.templates)


def cache_key(directory: Path) -> str:
    """A hash of the tokenizer's source files and of the versions of all that reads them."""
    digest = hashlib.sha256(f"{_FORMAT}".encode())
    for package in _ENGINES:
        digest.update(f"\n{package} {version(package)}".encode())
    files = [directory / name for name in _SOURCES]
    files += sorted(path for pattern in _GLOBS for path in directory.glob(pattern))
    for path in files:
        if path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"\n{path.relative_to(directory)} {content}".encode())
    return digest.hexdigest()[:32]


def write_artifact(out: Path, artifact: Artifact) -> None:
    """Write it last: a directory without it is not finished."""
    (out / "artifact.json").write_bytes(orjson.dumps(asdict(artifact)))


def read_artifact(path: Path) -> Artifact:
    """Raises OSError when it is not there."""
    values = orjson.loads((path / "artifact.json").read_bytes())
    values["notes"] = tuple(values["notes"])
    return Artifact(**values)


def report(artifact: Artifact, model: str) -> ModelReport:
    """What an operator wants to know of this model's engines."""
    template = "none"
    if artifact.templates:
        template = FastTemplate.name if artifact.fast_template else ReferenceTemplate.name
    encoder = FastEncoder.name if artifact.fast_encoder else ReferenceEncoder.name
    return ModelReport(
        model=model,
        encode_engine=encoder,
        template_engine=template,
        vocabulary=artifact.vocabulary,
        chat_ineligible=artifact.chat_barrier,
        completion_ineligible=artifact.completion_barrier,
        notes=artifact.notes,
    )


def _template(source: str, artifact: Artifact, *, on_loop: bool) -> ChatTemplate:
    return ChatTemplate(
        fast=FastTemplate(source) if artifact.fast_template else None,
        fast_floats=artifact.fast_floats,
        reference=None if on_loop else ReferenceTemplate(source),
        wants_parts=template_wants_parts(source),
        knows_developer='"developer"' in source or "'developer'" in source,
    )


def _chat(artifact: Artifact, *, on_loop: bool) -> Chat | None:
    default = artifact.templates.get("default")
    if default is None:
        return None
    plain = _template(default, artifact, on_loop=on_loop)
    with_tools = artifact.templates.get("tool_use", default)
    return Chat(
        plain=plain,
        with_tools=plain
        if with_tools == default
        else _template(with_tools, artifact, on_loop=on_loop),
        special_tokens=artifact.special_tokens,
    )


def _barrier(reason: str | None) -> Ineligible | None:
    return None if reason is None else Ineligible(reason, exact=False)


def load_model(name: str, path: Path, *, on_loop: bool, cache_bytes: int = 0) -> Model:
    """The model with its engines, loaded; for a tenth of a second to two.

    On the event loop it gets no reference engine: what needs one goes to a worker.
    `cache_bytes` bounds the fast engine's cache of text segments (0: none).
    """
    artifact = read_artifact(path)
    tokenizer = path / "tokenizer.json"
    reference = cache(partial(ReferenceEncoder, tokenizer))
    encoder: EncodeEngine
    if artifact.fast_encoder:
        encoder = FastEncoder(tokenizer, cache_bytes=cache_bytes)
    else:
        encoder = reference()
    model = Model(
        name=name,
        encoder=encoder,
        reference=reference,
        chat=_chat(artifact, on_loop=on_loop),
        chat_barrier=_barrier(artifact.chat_barrier),
        completion_barrier=_barrier(artifact.completion_barrier),
        counts_tool_calls=artifact.model_type in COUNTS_TOOL_CALLS,
    )
    _rehearse(model)
    return model


def _rehearse(model: Model) -> None:
    """Prepare a request of each kind: the first one costs milliseconds, which no user shall pay."""
    for kind, body in _REHEARSAL.items():
        with suppress(InvalidRequest, NeedsReference):
            model.prepare(kind, requests.parse(body, kind, trusted=False))
