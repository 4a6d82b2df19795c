"""Is a fast engine equal to the reference engine for this model? Compared before first use.

A single difference decides for the reference engine; the reason is kept for people to read. The
backend's own tokenizer is compared elsewhere, over the network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy

from tokenizer_pool import corpus
from tokenizer_pool.engines import EngineUnavailable, FastEncoder, ReferenceEncoder
from tokenizer_pool.templates import (
    FastTemplate,
    ReferenceTemplate,
    TemplateEngine,
    TemplateRefused,
    template_wants_parts,
)

# The engine is proved as it will run, with its cache of text segments.
_CACHE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Proof:
    """`fast` only when every comparison was equal; `reason` says how many, or what differed.

    Without `floats`, a template engine was not equal on numbers such as 2.0.
    """

    fast: bool
    reason: str
    floats: bool = True


def prove_encoder(tokenizer: Path, special: Sequence[str]) -> Proof:
    """Compare fastokens with tokenizers on the corpus and around the `special` tokens."""
    reference = ReferenceEncoder(tokenizer)
    try:
        fast = FastEncoder(tokenizer, cache_bytes=_CACHE_BYTES)
    except EngineUnavailable as error:
        return Proof(False, f"fastokens cannot load it: {error}")
    count = 0
    for text in corpus.texts(special):
        for with_special in (False, True):
            want = reference.encode(text, special=with_special)
            if not numpy.array_equal(fast.encode(text, special=with_special), want):
                return Proof(False, f"fastokens differs on {text[:40]!r}")
            count += 1
    return Proof(True, f"equal on {count} texts")


def _render(engine: TemplateEngine, context: Mapping[str, Any]) -> str | None:
    try:
        return engine.render(context)
    except TemplateRefused:
        return None


def prove_template(source: str, special_tokens: Mapping[str, str]) -> Proof:
    """Compare minijinja with Jinja2; a conversation that both refuse counts as equal.

    Raises TemplateRefused when Jinja2 cannot compile the template.
    """
    reference = ReferenceTemplate(source)
    try:
        fast = FastTemplate(source)
    except TemplateRefused as error:
        return Proof(False, f"minijinja cannot compile it: {error}".splitlines()[0])
    parts = template_wants_parts(source)
    rendered = 0
    for context in corpus.contexts(parts=parts):
        full = {**special_tokens, **context}
        want = _render(reference, full)
        if _render(fast, full) != want:
            return Proof(False, f"minijinja differs on {str(context['messages'])[:120]}")
        rendered += want is not None
    if not rendered:
        return Proof(False, "the template refused every conversation of the corpus")
    floats = all(
        _render(fast, {**special_tokens, **context})
        == _render(reference, {**special_tokens, **context})
        for context in corpus.whole_floats(parts=parts)
    )
    return Proof(True, f"equal on {rendered} conversations", floats)
