"""Making an engine warm, and measuring what a warm one does.

The first requests after a start (and after idling) pay for graphs, caches and connections. They
are sent from here, through the same pooled connections as traffic, so that no user pays. Not
here: when to warm (`lifecycle`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from random import Random
from statistics import median
from time import monotonic

import orjson

from backends.client import Client
from backends.errors import BackendError, NotServing, PhaseTimeout
from backends.probe import BUSY, one_token_request
from backends.settings import WarmSettings
from backends.types import Timeouts

_WORDS = ("water", "river", "stone", "light", "field", "house", "glass", "paper")
_MAX_ANSWER = 65_536
_STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True)
class OneToken:
    """What a one-token request came to: `ttft` in seconds, `prompt_tokens` as the server counts."""

    status: int
    ttft: float
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A finished warm-up. `ttfts` are the rounds' medians in seconds, coldest first.

    `prefill_rate` is in prompt tokens per second: the last round's tokens over its duration, so
    it includes the fixed costs of a request and errs on the slow side. None when the server was
    too busy to be measured, which also means that it is warm.
    """

    ttfts: tuple[float, ...]
    prefill_rate: float | None


class Warmer:
    """Sends one-token requests of a typical length to one model of one backend.

    Every prompt begins differently, so that no prefix cache answers for the engine. `requests`
    and `prompt_tokens` count what has been spent on this so far.
    """

    def __init__(self, client: Client, settings: WarmSettings, rng: Random) -> None:
        self.requests = 0
        self.prompt_tokens = 0
        self._client = client
        self._settings = settings
        self._salt = rng.getrandbits(48)
        self._numbers = count()

    async def one_token(self, path: str, model: str, tokens: int, within: float) -> OneToken:
        """Have the engine prefill about `tokens` tokens and decode one, `within` seconds.

        Raises BackendError, and NotServing for a status that is neither 200 nor "busy".
        """
        words = islice(cycle(_WORDS), max(tokens - 4, 1))
        text = " ".join((f"{self._salt:x}{next(self._numbers)}", *words))
        limits = Timeouts(first_token=within, token_gap=within, total=within)
        self.requests += 1
        # Streamed, as users' requests are: a server's first stream costs more than its second.
        request = one_token_request(path, model, text) | _STREAMED
        stream = await self._client.open(path, orjson.dumps(request), timeouts=limits)
        answer = _Answer(self._client.spec.name)
        await stream.relay(answer)
        if stream.status != 200 and stream.status not in BUSY:
            raise NotServing(self._client.spec.name, f"{path} answered {stream.status}")
        if stream.status == 200 and answer.failed:
            raise NotServing(self._client.spec.name, f"{path} ended its stream with an error")
        counted = answer.prompt_tokens()
        self.prompt_tokens += counted
        return OneToken(stream.status, stream.first_byte_at - stream.connected_at, counted)

    async def warm_up(self, path: str, model: str, lengths: Sequence[int]) -> WarmUp:
        """Rounds of parallel requests until their time to first token has settled.

        The requests of a round have these prompt lengths in turn.
        """
        give_up = monotonic() + self._settings.time_limit
        medians: list[float] = []
        rate: float | None = None
        for _ in range(self._settings.rounds):
            started = monotonic()
            answers = await self._round((path, model), lengths, give_up - started)
            served = [answer for answer in answers if answer.status == 200]
            if not served:
                break
            spent = sum(answer.prompt_tokens for answer in served)
            rate = spent / max(monotonic() - started, 1e-6) if spent else None
            medians.append(median(answer.ttft for answer in served))
            if settled(medians, self._settings.tolerance) or monotonic() >= give_up:
                break
        return WarmUp(tuple(medians), rate)

    async def _round(
        self, where: tuple[str, str], lengths: Sequence[int], within: float
    ) -> list[OneToken]:
        """The answers of one round, less those that were too late, unless all were."""
        answers: list[OneToken] = []
        late: list[PhaseTimeout] = []
        failures: list[BackendError] = []

        async def one(tokens: int) -> None:
            try:
                answers.append(await self.one_token(*where, tokens, within))
            except PhaseTimeout as error:
                late.append(error)
            except BackendError as error:
                failures.append(error)

        async with asyncio.TaskGroup() as group:
            for number in range(self._settings.requests):
                tokens = lengths[number % len(lengths)]
                group.create_task(one(tokens), name=f"warm-{self._client.spec.name}-{number}")
        if failures or not answers:
            raise [*failures, *late][0]
        return answers


def settled(medians: Sequence[float], tolerance: float) -> bool:
    """Whether the last two rounds' medians differ by at most the share `tolerance`."""
    if len(medians) < 2:
        return False
    before, last = medians[-2:]
    return abs(before - last) <= tolerance * before


class _Answer:
    """A sink for one small answer: a stream, or one document from a server that does not stream."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._data = b""

    def write(self, data: bytes, /) -> None:
        self._data += data
        if len(self._data) > _MAX_ANSWER:
            raise NotServing(self._backend, "the answer to a one-token request has no end")

    @property
    def failed(self) -> bool:
        """What goes wrong after the head is out is told by an event."""
        return b'data: {"error"' in self._data

    def prompt_tokens(self) -> int:
        """As the server counts them; 0 where it does not say."""
        for event in reversed(self._data.split(b"\n\n")):
            try:
                counted = orjson.loads(event.removeprefix(b"data: "))["usage"]["prompt_tokens"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                continue
            return counted if type(counted) is int else 0
        return 0
