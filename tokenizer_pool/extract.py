"""`python -m tokenizer_pool.extract DIR OUT`: what a model's tokenizer is, as plain files.

The only importer of transformers, in a short-lived process of its own: it costs seconds and
400 MB, and it alone knows how vLLM would build the tokenizer (class-specific tokenizers differ
from the `tokenizer.json` beside them). Writes `tokenizer.json` and `artifact.json` to OUT and
proves the fast engines. When there is no tokenizer it fails, and the last line of stderr says why.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tokenizer_pool.artifact import Artifact, write_artifact
from tokenizer_pool.eligibility import OWN_RENDERERS
from tokenizer_pool.engines import ReferenceEncoder
from tokenizer_pool.parity import Proof, prove_encoder, prove_template
from tokenizer_pool.templates import TemplateRefused

# Model types whose published tokenizer class is wrong; vLLM loads the generic one for them.
_GENERIC_CLASS: Final = frozenset(
    {"internlm2", "step3_vl", "step3p7", "unlimited-ocr", "unlimited_ocr"}
)


class NoTokenizer(Exception):
    """The directory's tokenizer is not of a kind that we can run."""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _load(directory: Path, model_type: str | None) -> Any:
    from transformers import AutoTokenizer, TokenizersBackend

    generic = model_type in _GENERIC_CLASS
    loader: Any = TokenizersBackend if generic else AutoTokenizer
    # Side and trust as vLLM has them for a generating model.
    tokenizer = loader.from_pretrained(
        directory, trust_remote_code=False, truncation_side="left", local_files_only=True
    )
    if not getattr(tokenizer, "is_fast", False):
        raise NoTokenizer("it has only a slow Python tokenizer")
    return tokenizer


def _backend_json(tokenizer: Any) -> bytes:
    """The tokenizer that really runs, without the truncation and padding of its last use."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend["truncation"] = backend["padding"] = None
    return json.dumps(backend, ensure_ascii=False).encode()


def _templates(directory: Path, tokenizer: Any) -> dict[str, str]:
    template = tokenizer.chat_template
    templates = {"default": template} if isinstance(template, str) else dict(template or {})
    # A multimodal model's processor may have a template of its own; vLLM takes it without tools.
    processor = _read_json(directory / "chat_template.json").get("chat_template")
    if isinstance(processor, str):
        templates.setdefault("tool_use", templates.get("default", processor))
        templates["default"] = processor
    return {name: templates[name] for name in ("default", "tool_use") if name in templates}


def barriers(directory: Path, config: dict[str, Any]) -> tuple[str | None, str | None]:
    """Why chats, and completions, of this model cannot travel as ids (None: they can).

    `config` is the model's `config.json`.
    """
    mistral = any(directory.glob("consolidated*.safetensors")) and (
        (directory / "tekken.json").exists() or any(directory.glob("tokenizer.model.v*"))
    )
    if mistral:
        reason = "vLLM tokenizes it with mistral-common"
        return reason, reason
    for name in (config.get("model_type"), *config.get("architectures", ())):
        if name in OWN_RENDERERS:
            return f"vLLM renders its chats by code of its own ({OWN_RENDERERS[name]})", None
    return None, None


def _prove_templates(templates: dict[str, str], special_tokens: dict[str, str]) -> Proof:
    proofs = [prove_template(source, special_tokens) for source in templates.values()]
    worst = next((proof for proof in proofs if not proof.fast), proofs[0])
    return replace(worst, floats=all(proof.floats for proof in proofs))


def extract(directory: Path, out: Path) -> None:
    """Write the artifact of `directory` to `out`; raises NoTokenizer."""
    config = _read_json(directory / "config.json")
    tokenizer = _load(directory, config.get("model_type"))
    out.mkdir(parents=True, exist_ok=True)
    path = out / "tokenizer.json"
    path.write_bytes(_backend_json(tokenizer))
    special_tokens = dict(tokenizer.special_tokens_map)
    vocabulary = ReferenceEncoder(path).vocabulary()
    encoder = prove_encoder(path, sorted({*tokenizer.all_special_tokens})[:64])
    templates = _templates(directory, tokenizer)
    chat_barrier, completion_barrier = barriers(directory, config)
    template = Proof(False, "the model has no chat template")
    if templates:
        try:
            template = _prove_templates(templates, special_tokens)
        except TemplateRefused as error:
            templates = {}
            template = Proof(False, f"its chat template does not compile: {error}")
    if not templates:
        chat_barrier = chat_barrier or template.reason
    write_artifact(
        out,
        Artifact(
            vocabulary=vocabulary,
            model_type=config.get("model_type"),
            templates=templates,
            special_tokens=special_tokens,
            fast_encoder=encoder.fast,
            fast_template=template.fast,
            fast_floats=template.floats,
            notes=(f"encode: {encoder.reason}", f"template: {template.reason}"),
            chat_barrier=chat_barrier,
            completion_barrier=completion_barrier,
        ),
    )


def main() -> None:
    """The command line: DIR and OUT. Whoever serves requests on this machine comes first."""
    os.nice(10)
    directory, out = map(Path, sys.argv[1:3])
    extract(directory, out)


if __name__ == "__main__":
    main()
