"""What we asked for is out of the answer, and not a byte else, however the bytes arrive."""

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.extras import BodyFilter, Filter, StreamFilter

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"it broke","code":500}}\n\n'
# Nothing that a model says may be taken for what a server says.
WORDS = (
    "water",
    '"usage":{"prompt_tokens":5}',
    '"finish_reason":"stop"',
    "\n\n",
    '"token_ids":[1]',
)


class Client:
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        assert data
        self.got.append(data)


def event(choices: list[Any], **more: Any) -> bytes:
    document = HEAD | {"choices": choices} | more
    return b"data: %b\n\n" % json.dumps(document, separators=(",", ":")).encode()


def delta(word: str, ids: list[int] | None = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": word} if word else {}, "finish_reason": finish}
    return choice | {"token_ids": ids}


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens + 2, "completion_tokens": 2}


def stream(words: list[str], *, asked: bool, ids: bool, fingerprint: str | None) -> list[bytes]:
    """A stream as vLLM 0.32 writes it; `asked` for the usage, and for `ids`."""
    prompt = [1, 22, 333] if ids else None
    events = [event([delta(" ")], prompt_token_ids=prompt)]
    for number, word in enumerate(words):
        if word or ids:  # a token without text is only told of beside its id
            events.append(event([delta(word, [number] if ids else None)]))
    stamp = {} if fingerprint is None else {"system_fingerprint": fingerprint}
    events.append(event([delta("!", [9] if ids else None, "stop")], **({} if asked else stamp)))
    if asked:
        events.append(event([], usage=usage(3), **stamp))
    return [*events, DONE]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % len(data) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def through(filtered: Filter, pieces: list[bytes], *, whole: bool = True) -> bytes:
    client = Client()
    filtered.sink = client
    for piece in pieces:
        filtered.write(piece)
    filtered.finish(whole=whole)
    return b"".join(client.got)


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(st.sampled_from(("", *WORDS)), max_size=5),
    ids=st.booleans(),
    fingerprint=st.sampled_from((None, "vllm-1")),
    places=st.lists(st.integers(0, 5_000), max_size=6),
)
def test_the_client_gets_the_stream_that_it_asked_for(
    words: list[str], ids: bool, fingerprint: str | None, places: list[int]
) -> None:
    sent = b"".join(stream(words, asked=True, ids=ids, fingerprint=fingerprint))
    plain = b"".join(stream(words, asked=False, ids=False, fingerprint=fingerprint))
    filtered = StreamFilter(usage=True, ids=ids)
    assert through(filtered, cut(sent, places)) == plain
    assert filtered.prompt_tokens == 3
    assert filtered.prompt_ids == (b"[1,22,333]" if ids else None)


def test_every_place_at_which_a_read_may_end() -> None:
    sent = b"".join(stream(["a"], asked=True, ids=True, fingerprint="vllm-1"))
    plain = b"".join(stream(["a"], asked=False, ids=False, fingerprint="vllm-1"))
    for place in range(1, len(sent)):
        assert through(StreamFilter(usage=True, ids=True), cut(sent, [place])) == plain
    assert through(StreamFilter(usage=True, ids=True), [bytes([byte]) for byte in sent]) == plain


@pytest.mark.parametrize("asked", [False, True])
def test_a_token_is_passed_on_at_once(asked: bool) -> None:
    client = Client()
    filtered = StreamFilter(usage=True, ids=False)
    filtered.sink = client
    *tokens, last, _ = stream(["a", "b"], asked=False, ids=False, fingerprint=None)
    for number, token in enumerate(tokens, 1):
        filtered.write(token)
        assert len(client.got) == number
    # The last one waits for what comes right behind it.
    filtered.write(last)
    assert client.got == tokens
    filtered.write(event([], usage=usage(3)) + DONE if asked else DONE)
    assert b"".join(client.got) == b"".join([*tokens, last, DONE])


def test_usage_that_a_server_tells_in_any_case_stays() -> None:
    chunks = [event([delta(word)], usage=usage(7)) for word in ("", "a")]
    chunks += [event([delta("b", finish="stop")], usage=usage(7)), event([], usage=usage(7)), DONE]
    filtered = StreamFilter(usage=True, ids=False)
    assert through(filtered, chunks) == b"".join(chunks)
    assert filtered.prompt_tokens == 7


def test_usage_that_the_client_asked_for_stays_beside_ids_that_it_did_not() -> None:
    sent = b"".join(stream(["a"], asked=True, ids=True, fingerprint="x"))
    filtered = StreamFilter(usage=False, ids=True)
    plain = b"".join(stream(["a"], asked=True, ids=False, fingerprint="x"))
    assert through(filtered, cut(sent, [9, 99, 999])) == plain
    assert (filtered.prompt_tokens, filtered.prompt_ids) == (3, b"[1,22,333]")


def test_a_server_that_tells_no_usage_loses_nothing() -> None:
    chunks = stream(["a"], asked=False, ids=False, fingerprint="x")
    nulls = [event([delta("a")], usage=None), DONE]
    other = [b'data: {"usage" nonsense\n\n', b': "usage"\n\n', b'data: ["usage"]\n\n']
    for sent in (chunks, nulls, other, [b'{"error":{"message":"a JSON answer"}}']):
        filtered = StreamFilter(usage=True, ids=False)
        assert through(filtered, sent) == b"".join(sent)
        assert filtered.prompt_tokens is None


def test_of_a_broken_answer_whole_events_are_told() -> None:
    *tokens, last, _ = stream(["a"], asked=False, ids=False, fingerprint=None)
    cut_short = [*tokens, last, ERROR[:9]]
    assert through(StreamFilter(usage=True, ids=False), cut_short, whole=False) == b"".join(
        [*tokens, last]
    )
    assert through(BodyFilter(), [b'{"id":'], whole=False) == b""
    # An error that vLLM itself tells of takes the place of the usage.
    assert through(StreamFilter(usage=True, ids=False), [last, ERROR + DONE]) == last + ERROR + DONE


def test_what_is_no_stream_of_events_is_not_kept_for_ever() -> None:
    client = Client()
    filtered = StreamFilter(usage=True, ids=False)
    filtered.sink = client
    for _ in range(18):
        filtered.write(b"x" * (1 << 20))
    assert sum(map(len, client.got)) >= 17 << 20


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_ids_are_taken_out_of_an_answer_in_one_piece(separators: tuple[str, str]) -> None:
    def answer(prompt: list[int] | None, output: list[int] | None) -> bytes:
        message = {"role": "assistant", "content": '"token_ids":[1]'}
        choice = {"index": 0, "message": message, "token_ids": output}
        document = {"choices": [choice], "usage": usage(3), "prompt_token_ids": prompt}
        return json.dumps(document, separators=separators).encode()

    filtered = BodyFilter()
    sent = answer([1, 22, 333], [4, 5])
    plain = through(filtered, [sent[:40], sent[40:]])
    assert json.loads(plain) == json.loads(answer(None, None))
    assert filtered.prompt_ids is not None
    assert json.loads(filtered.prompt_ids) == [1, 22, 333]


def test_a_chunk_costs_less_than_a_microsecond() -> None:
    class Drain:
        def write(self, data: bytes, /) -> None:
            pass

    filtered, drain = StreamFilter(usage=True, ids=False), Drain()
    filtered.sink = drain
    token = event([delta(" water")])

    def fastest(write: Any) -> float:
        rounds = []
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(500):
                write(token)
            rounds.append((time.perf_counter() - started) / 500)
        return min(rounds)

    # Measured 0.3 µs; the bound is wide, for a busy machine.
    assert fastest(filtered.write) - fastest(drain.write) < 2e-6
