"""The proof that a server takes token ids, and the capabilities that follow.

A server may accept the field that carries ids and ignore it without a word (vLLM's Rust frontend
does on chat): believing a version or a status would then answer questions that nobody asked. So
ids are sent for two prompts of different lengths, beside an empty message list, and the channel is
granted only if the server counts exactly those ids each time and, where it tells which ids it
used, tells the same ones. Everything else means text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backends.errors import NotServing
from backends.pages import kv_tokens, memory_utilization
from backends.probe import CHAT, COMPLETIONS, Answer, Probe
from backends.types import Capabilities, Channel, ServedModel

SENTENCES = (
    "The water rises slowly behind the old stone dam.",
    "Seven grey herons stood in the shallows this morning, waiting for the sluice to open again.",
)
"""Their ids come from the server's own `/tokenize`, so they are valid in its vocabulary."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    channel: Channel
    note: str | None = None


async def prove(probe: Probe) -> Capabilities:
    """Find out what the server is and which channels it takes ids by.

    Raises NotServing when it does not answer, gives no token, or is too busy to be judged.
    """
    version = await probe.version() or "unknown"
    models = await probe.models()
    # Adapters share their base model's frontend, tokenizer and engine: proving those is enough.
    bases = [model for model in models if model.parent is None] or list(models)
    path = await probe.generate_path(bases[0].name)
    chat, chat_notes = await _channel(probe, bases, "chat")
    completions, completion_notes = await _channel(probe, bases, "completions")
    page = await probe.page("/metrics") or b""
    return Capabilities(
        version=version,
        models=models,
        chat=chat,
        completions=completions,
        notes=chat_notes + completion_notes,
        generate_path=path,
        kv_tokens=kv_tokens(page),
        memory_utilization=memory_utilization(page),
    )


async def _channel(
    probe: Probe, models: list[ServedModel], api: str
) -> tuple[Channel, tuple[str, ...]]:
    """Ids only if every model proves them, since a backend has one channel per API."""
    notes = []
    for model in models:
        verdict = await _prove_model(probe, model.name, api)
        if verdict.note is not None:
            notes.append(f"{api} of {model.name} by text: {verdict.note}")
    return (Channel.TEXT if notes else Channel.IDS), tuple(notes)


async def _prove_model(probe: Probe, model: str, api: str) -> _Verdict:
    prompts = []
    for sentence in SENTENCES:
        ids = await probe.tokenize(model, prompt=sentence, add_special_tokens=False)
        if not ids:
            return _Verdict(Channel.TEXT, "/tokenize gave no ids to prove it with")
        prompts.append(ids)
    if len(prompts[0]) == len(prompts[1]):
        return _Verdict(Channel.TEXT, "/tokenize gave both sentences the same length")
    path, request = _REQUESTS[api]
    for ids in prompts:
        answer = await probe.ask(
            path,
            {
                "model": model,
                "max_tokens": 1,
                "temperature": 0,
                "return_token_ids": True,
                **request(ids),
            },
        )
        if answer.busy:
            raise NotServing(probe.spec.name, f"too busy to be judged: {path} {answer.status}")
        doubt = _doubt(answer, ids)
        if doubt is not None:
            return _Verdict(Channel.TEXT, doubt)
    return _Verdict(Channel.IDS)


_REQUESTS: dict[str, tuple[str, Callable[[list[int]], dict[str, Any]]]] = {
    "chat": (
        CHAT,
        lambda ids: {"messages": [], "kv_transfer_params": {"prompt_token_ids": ids}},
    ),
    "completions": (COMPLETIONS, lambda ids: {"prompt": ids}),
}


def _doubt(answer: Answer, ids: list[int]) -> str | None:
    """What speaks against the answer being one to exactly these ids."""
    if not answer.ok:
        return f"ids were refused with {answer.status}"
    usage = answer.document.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if counted != len(ids):
        return f"{len(ids)} ids were counted as {counted}"
    used = _used_ids(answer.document)
    if used is not None and used != ids:
        return "the server says that it used other ids"
    return None


def _used_ids(document: dict[str, Any]) -> object:
    """`prompt_token_ids` of the response (chat) or of its first choice (completions)."""
    if document.get("prompt_token_ids") is not None:
        return document["prompt_token_ids"]
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first.get("prompt_token_ids") if isinstance(first, dict) else None
