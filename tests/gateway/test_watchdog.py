"""The watchdog's arithmetic: which answers it can judge, and when it has seen enough."""

import dataclasses

import pytest

from gateway.extras import BodyFilter, Filter, StreamFilter
from gateway.watchdog import Watch, Watchdog, filter_of
from tokenizer_pool.types import TokenizedPrompt, Wanted

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":9}}\n\ndata: [DONE]\n\n'
CHAT = b'{"messages":[],"kv_transfer_params":{"prompt_token_ids":[1,2,3]}}'
TOLERATED = 2


def prompt(tokens: int = 3, ids: bytes = CHAT, **fields: bool) -> TokenizedPrompt:
    whole = TokenizedPrompt("m", tokens, None, stream=True, ids=ids)
    return dataclasses.replace(whole, **fields)


class Told:
    def __init__(self, watch: Watch | None = None) -> None:
        self.distrusted: list[tuple[str, str, str]] = []
        self.counted: list[tuple[str, str]] = []
        self.watchdog = Watchdog(
            watch or Watch(tolerated=TOLERATED),
            lambda *told: self.distrusted.append(told),
            lambda *told: self.counted.append(told),
        )


@pytest.mark.parametrize(
    "tail",
    [
        USAGE % 7,
        b'{"id":"x","usage":{"prompt_tokens": 7,"completion_tokens":1}}',
        b"data: [DONE]\n\n",
        b'data: {"choices":[{"delta":{"content":"\\"usage\\":{\\"prompt_tokens\\":5}"}}]}\n\n',
        b"",
    ],
)
def test_an_equal_count_and_an_absent_one_are_no_difference(tail: bytes) -> None:
    told = Told()
    for _ in range(10):
        told.watchdog.check("b", prompt(7), None, tail)
    assert not told.counted
    assert not told.distrusted


def test_differences_are_counted_by_backend_and_model_and_end_in_distrust() -> None:
    told = Told()
    for _ in range(TOLERATED):
        told.watchdog.check("b", prompt(8), None, USAGE % 7)
        told.watchdog.check("other", prompt(8), None, USAGE % 7)
    assert not told.distrusted
    told.watchdog.check("b", prompt(8), None, USAGE % 7)
    assert [(backend, model) for backend, model, _ in told.distrusted] == [("b", "m")]
    assert len(told.counted) == 2 * TOLERATED + 1


class Seen:
    """What a filter found in an answer."""

    sink = None

    def __init__(self, tokens: int | None, ids: bytes | None) -> None:
        self.prompt_tokens = tokens
        self.prompt_ids = ids

    def write(self, data: bytes, /) -> None:
        raise AssertionError

    def finish(self, *, whole: bool) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("seen", "body", "differs"),
    [
        (Seen(3, None), CHAT, False),
        (Seen(4, None), CHAT, True),
        (Seen(3, b"[1,2,3]"), CHAT, False),
        (Seen(None, b"[1, 2, 3]"), b'{"model":"m","prompt":[1,2,3]}', False),
        (Seen(3, b"[1,2,3]"), memoryview(CHAT), False),
        (Seen(3, b"[1,2,4]"), memoryview(CHAT), True),
        (Seen(3, b"[1,2,4]"), CHAT, True),
        (Seen(3, b"[2,3]"), CHAT, True),
        (Seen(3, b"[11,2,3]"), CHAT, True),
    ],
)
def test_what_a_filter_saw_is_judged(seen: Filter, body: bytes, differs: bool) -> None:
    told = Told()
    told.watchdog.check("b", prompt(ids=body), seen, b"")
    assert bool(told.counted) == differs


def test_the_usage_is_wanted_of_all_and_the_ids_of_a_sample() -> None:
    watchdog = Told(Watch(sample=3)).watchdog
    asked = [watchdog.wanted(ids=True, text=False) for _ in range(9)]
    assert all(wanted.usage and wanted.ids and not wanted.text for wanted in asked)
    assert [wanted.prompt_ids for wanted in asked] == [False, False, True] * 3
    assert watchdog.wanted(ids=True, text=True).text
    assert watchdog.wanted(ids=False, text=True) == Wanted(ids=False)
    never = Told(Watch(sample=0)).watchdog
    assert not any(never.wanted(ids=True, text=True).prompt_ids for _ in range(2000))


def test_a_filter_stands_only_where_something_was_added() -> None:
    assert filter_of(prompt()) is None
    assert filter_of(prompt(stream=False)) is None
    assert isinstance(filter_of(prompt(added_usage=True)), StreamFilter)
    assert isinstance(filter_of(prompt(added_prompt_ids=True)), StreamFilter)
    assert isinstance(filter_of(prompt(added_prompt_ids=True, stream=False)), BodyFilter)
