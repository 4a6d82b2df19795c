"""The watchdog's arithmetic: which answers it can judge, and when it has seen enough."""

import pytest

from gateway.watchdog import TOLERATED, Watchdog

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":9}}\n\ndata: [DONE]\n\n'


class Told:
    def __init__(self) -> None:
        self.distrusted: list[tuple[str, str, str]] = []
        self.counted: list[tuple[str, str]] = []
        self.watchdog = Watchdog(
            lambda *told: self.distrusted.append(told), lambda *told: self.counted.append(told)
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
        told.watchdog.check("b", "m", ours=7, tail=tail)
    assert not told.counted
    assert not told.distrusted


def test_differences_are_counted_by_backend_and_model_and_end_in_distrust() -> None:
    told = Told()
    for _ in range(TOLERATED):
        told.watchdog.check("b", "m", ours=8, tail=USAGE % 7)
        told.watchdog.check("other", "m", ours=8, tail=USAGE % 7)
    assert not told.distrusted
    told.watchdog.check("b", "m", ours=8, tail=USAGE % 7)
    assert [(backend, model) for backend, model, _ in told.distrusted] == [("b", "m")]
    assert len(told.counted) == 2 * TOLERATED + 1
