"""Which channel is found to be the faster one, with a clock of our own in place of a backend."""

import json

import pytest

from backends.errors import NotServing
from backends.types import Channel
from gateway.bands import Band, Timed, channel_of, complete, decided, pinned
from gateway.directory import Directory, Row, Standing
from gateway.meter import Meter
from tokenizer_pool.types import Kind, TokenizedPrompt

IDS, TEXT = Channel.IDS, Channel.TEXT


class Pool:
    """Counts a word as a token and a quarter."""

    def __init__(self, *, eligible: bool = True) -> None:
        self._eligible = eligible

    async def prepare(self, kind: Kind, body: bytes) -> TokenizedPrompt:
        document = json.loads(body)
        said = document.get("prompt") or " ".join(m["content"] for m in document["messages"])
        tokens = len(said.split()) * 5 // 4
        ids = b"ids %d" % tokens if self._eligible else b""
        return TokenizedPrompt("m", tokens, 1, True, text=b"text %d" % tokens, ids=ids)


class Server:
    """Takes so long for a token by each channel, and for one that is not cached yet."""

    def __init__(self, ids: float, text: float, prefill: float = 0.0, base: float = 0.01) -> None:
        self._per_token = {b"ids": ids, b"text": text}
        self._prefill = prefill
        self._base = base
        self.cached: set[bytes] = set()
        self.asked = 0
        self.caches = True
        self.fails_after: int | None = None

    async def ask(self, backend: str, kind: Kind, body: bytes) -> float:
        self.asked += 1
        if self.fails_after is not None and self.asked > self.fails_after:
            raise NotServing(backend, "it is gone")
        channel, tokens = body.split()
        seconds = self._base + self._per_token[channel] * int(tokens)
        if tokens not in self.cached:
            seconds += self._prefill * int(tokens)
        if self.caches:
            self.cached.add(tokens)
        return seconds


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.COMPLETION])
async def test_the_faster_channel_wins_in_each_band(kind: Kind) -> None:
    ids_win = await Meter(Pool(), Server(1e-6, 5e-6, 1e-4).ask).bands("b", "m", kind, None)
    assert [(band.up_to, band.channel) for band in ids_win] == [
        (1024, IDS),
        (4096, IDS),
        (None, IDS),
    ]
    text_wins = await Meter(Pool(), Server(5e-6, 1e-6, 1e-4).ask).bands("b", "m", kind, None)
    # At 512 tokens 2 ms are too much of 12.5 to be noise; a tie goes to ids.
    assert [band.channel for band in text_wins] == [TEXT, TEXT, TEXT]
    assert text_wins[-1].ids == pytest.approx(0.01 + 5e-6 * 8192, rel=0.03)
    tie = await Meter(Pool(), Server(1e-6, 0.98e-6).ask).bands("b", "m", kind, None)
    assert {band.channel for band in tie} == {IDS}


async def test_longer_prompts_than_the_context_are_not_sent() -> None:
    bands = await Meter(Pool(), Server(5e-6, 1e-6).ask).bands("b", "m", Kind.CHAT, 4096)
    # What was measured last goes for all that is longer.
    assert [(band.up_to, band.channel) for band in bands] == [(1024, TEXT), (None, TEXT)]
    assert await Meter(Pool(), Server(5e-6, 1e-6).ask).bands("b", "m", Kind.CHAT, 256) == pinned(
        IDS
    )


async def test_an_engine_that_caches_no_prefixes_is_spared() -> None:
    server = Server(5e-6, 1e-6, prefill=1e-3)
    server.caches = False
    assert await Meter(Pool(), server.ask).bands("b", "m", Kind.CHAT, None) == pinned(IDS)
    assert server.asked == 2


async def test_what_cannot_be_measured_goes_by_ids() -> None:
    server = Server(5e-6, 1e-6)
    server.fails_after = 50
    bands = await Meter(Pool(), server.ask).bands("b", "m", Kind.CHAT, None)
    assert [(band.up_to, band.channel) for band in bands] == [(None, TEXT)]
    refused = Meter(Pool(eligible=False), server.ask)
    assert await refused.bands("b", "m", Kind.CHAT, None) == pinned(IDS)


def test_a_prompt_goes_by_the_channel_of_its_band() -> None:
    slow, quick = Timed(1.0, 0.5), Timed(0.5, 1.0)
    bands = complete([decided(1024, slow, slow), decided(4096, quick, quick)])
    assert bands == (Band(1024, TEXT, 1.0, 0.5), Band(None, IDS, 0.5, 1.0))
    assert [channel_of(bands, tokens) for tokens in (1, 1024, 1025, 9_999)] == [
        *(TEXT, TEXT),
        *(IDS, IDS),
    ]
    assert channel_of((), 5) is IDS


@pytest.mark.parametrize(
    ("alone", "among_others", "channel"),
    [
        (Timed(1.0, 0.9), Timed(1.0, 0.9), TEXT),
        (Timed(0.6, 1.0), Timed(1.0, 0.8), IDS),
        (Timed(1.0, 0.9), Timed(0.9, 1.0), IDS),
        (Timed(1.0, 0.98), Timed(1.0, 0.9), IDS),
    ],
)
def test_text_has_to_be_quicker_alone_and_among_others(
    alone: Timed, among_others: Timed, channel: Channel
) -> None:
    assert decided(None, alone, among_others).channel is channel


def test_the_forms_that_are_made_are_those_that_some_backend_takes() -> None:
    directory = Directory(["a", "b"])
    assert directory.forms(Kind.CHAT) == (True, True)
    row = Row(standings={"m": Standing(IDS, TEXT, "", chat_bands=pinned(IDS))})
    directory.put("a", row)
    assert directory.forms(Kind.CHAT) == (True, False)
    assert directory.forms(Kind.COMPLETION) == (False, True)
    mixed = (Band(1024, TEXT), Band(None, IDS))
    directory.put("b", Row(standings={"m": Standing(IDS, IDS, "", chat_bands=mixed)}))
    assert directory.forms(Kind.CHAT) == (True, True)
    short = TokenizedPrompt("m", 100, 1, stream=True)
    long = TokenizedPrompt("m", 5_000, 1, stream=True)
    assert [directory.takes_ids("b", Kind.CHAT, prompt) for prompt in (short, long)] == [
        False,
        True,
    ]
    assert directory.takes_ids("a", Kind.CHAT, short)
    assert not directory.takes_ids("a", Kind.COMPLETION, short)
    assert not directory.takes_ids("gone", Kind.CHAT, short)
    directory.remove("b")
    assert directory.forms(Kind.CHAT) == (True, False)
