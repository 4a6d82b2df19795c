"""What a run needs to know of the server: its model, its tokenizer, its template's length."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bench.fake_vllm.options import TOKENIZER
from bench.load.exchange import Exchanger, Request
from bench.load.prompts import Prompts
from bench.workload import Job

PROBE_TOKENS = 16


class LoadFailed(Exception):
    """The load cannot be run as asked; the message is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Served:
    """`tokenizer` is a tokenizer.json. `guessed` when nothing said that it is the model's.

    `context` is the longest prompt with its answer, in tokens, where the server says so. `listed`
    are the models that it names; it may serve others, too.
    """

    model: str
    tokenizer: Path
    guessed: bool
    context: int | None = None
    listed: tuple[str, ...] = ()

    def fits(self, job: Job) -> bool:
        """Whether there is room for its prompt and one token: servers cut longer answers."""
        return self.context is None or job.prompt < self.context


async def discover(
    url: str, *, model: str | None, tokenizer: Path | None, api_key: str | None
) -> Served:
    """Ask the server for what was not given. Raises LoadFailed."""
    cards = await _models(url, api_key)
    if model is None:
        if not cards:
            raise LoadFailed(f"{url} serves no model")
        model = next(iter(cards))
    card = cards.get(model, {})
    found = _tokenizer_file(tokenizer, Path(card.get("root") or ""))
    file = found or _file(TOKENIZER)
    context = card.get("max_model_len")
    return Served(model, file, guessed=found is None, context=context, listed=tuple(cards))


def _tokenizer_file(given: Path | None, root: Path) -> Path | None:
    """The one that was asked for, else the one that the server names, if it is on this machine."""
    if given is not None:
        return given if given.is_file() else _file(given)
    return _file(root) if root.is_absolute() and _file(root).exists() else None


def _file(directory: Path) -> Path:
    return directory / "tokenizer.json"


async def _models(url: str, api_key: str | None) -> dict[str, dict[str, Any]]:
    """What `/v1/models` says of each model, by name."""
    base = url.rstrip("/")
    path = f"{base}/models" if base.endswith("/v1") else f"{base}/v1/models"
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with aiohttp.ClientSession(headers=headers) as http, http.get(path) as response:
            if response.status != 200:
                raise LoadFailed(f"{path} answered {response.status}: {await response.text()}")
            document = await response.json(content_type=None)
    except (aiohttp.ClientError, ValueError) as error:
        raise LoadFailed(f"{path}: {error}") from error
    return {card["id"]: card for card in document["data"]}


async def template_overhead(exchanger: Exchanger, prompts: Prompts, served: Served) -> int:
    """The tokens that the server adds around a prompt, by its own count; 0 when it gives none.

    Raises LoadFailed when it does not answer.
    """
    parts = [prompts.text(PROBE_TOKENS, seed=0)]
    probe = Request(0, 0.0, parts, PROBE_TOKENS, 1, service_class="probe")
    sample = await exchanger.send(probe)
    if sample.error:
        raise LoadFailed(f"the first request failed: {sample.error}{_advice(served)}")
    return sample.prompt_tokens - PROBE_TOKENS


def _advice(served: Served) -> str:
    """For a model that the server does not name: which ones it does."""
    if served.model in served.listed:
        return ""
    names = ", ".join(served.listed) or "none"
    return f"; the server does not list {served.model!r}: --model takes one of {names}"
