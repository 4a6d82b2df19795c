"""What the report says of known logs, and what holds of any log."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.record import Outcome
from gateway.report.analysis import Analysis, analyse
from gateway.report.lines import Log, parse
from gateway.report.sample import Sample
from tests.gateway.report.days import HOUR, NOW, line, write

DAY = 24 * HOUR
TARGETS = {"short": 0.6, "long": 5.0}


def analysis_of(path: Path, span: float = DAY) -> Analysis:
    return analyse(Log([path]), until=NOW, span=span, targets=TARGETS)


def test_a_day_is_put_beside_the_day_before(tmp_path: Path) -> None:
    today = [line(ms / 1e3, ago=HOUR) for ms in range(1, 101)]
    before = [line(0.2, ago=DAY + HOUR) for _ in range(10)]
    older = [line(9.0, ago=3 * DAY)]
    report = analysis_of(write(tmp_path / "log", today + before + older)).report
    now, then = report.classes["short"], report.before["short"]
    assert (now.requests, then.requests) == (100, 10)
    assert now.ttft is not None
    assert (now.ttft.p50, now.ttft.p95, now.ttft.p99) == (0.05, 0.095, 0.099)
    assert now.ttft.mean == pytest.approx(0.0505)
    assert then.ttft is not None
    assert then.ttft.p99 == 0.2


def test_the_share_within_the_target_is_counted_by_class(tmp_path: Path) -> None:
    lines = [line(0.5), line(0.6), line(0.7), line(0.7)]
    lines += [line(4.0, service_class="long"), line(6.0, service_class="long")]
    report = analysis_of(write(tmp_path / "log", lines)).report
    assert report.classes["short"].within_target == 0.5
    assert report.classes["long"].within_target == 0.5


def test_stages_add_up_to_where_the_time_went(tmp_path: Path) -> None:
    fast = {"read": 0.0, "tokenize": 0.01, "queue": 0.0, "backend": 0.1}
    slow = {"read": 0.0, "tokenize": 0.03, "queue": 0.2, "backend": 0.1}
    path = write(tmp_path / "log", [line(0.11, stages=fast), line(0.33, stages=slow)])
    found = analysis_of(path).report.classes["short"]
    assert found.ttft is not None
    assert found.stages["queue"] == pytest.approx(0.1)
    assert sum(found.stages.values()) == pytest.approx(found.ttft.mean)


def test_the_tail_is_told_hour_by_hour(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [line(0.1, ago=2.5 * HOUR), line(0.4, ago=0.5 * HOUR)])
    assert analysis_of(path, 3 * HOUR).report.classes["short"].hourly == (0.1, None, 0.4)


def test_backends_that_fail_come_before_those_that_are_slow(tmp_path: Path) -> None:
    lines = [line(0.1, backend="good") for _ in range(30)]
    lines += [line(0.9, backend="slow") for _ in range(30)]
    lines += [line(0.1, backend="broken") for _ in range(30)]
    lines += [line(None, backend="broken", outcome=Outcome.BACKEND_FAILED) for _ in range(3)]
    lines += [line(9.9, backend="rare")]
    worst = analysis_of(write(tmp_path / "log", lines)).report.worst_backends
    assert [backend.name for backend in worst] == ["broken", "slow", "good"]
    assert worst[0].failed == pytest.approx(3 / 33)


def test_a_client_that_left_or_erred_is_not_our_failure(tmp_path: Path) -> None:
    outcomes = (Outcome.ABANDONED, Outcome.INVALID, Outcome.SHED, Outcome.EXPIRED)
    path = write(tmp_path / "log", [line(None, outcome=outcome) for outcome in outcomes])
    assert analysis_of(path).report.classes["short"].failed == 2


def test_a_sampled_line_stands_for_as_many_as_its_weight(tmp_path: Path) -> None:
    path = write(tmp_path / "log", [line(0.1, weight=9.0), line(1.0)])
    found = analysis_of(path).report.classes["short"]
    assert found.requests == 10
    assert found.ttft is not None
    assert (found.ttft.p90, found.ttft.p99) == (0.1, 1.0)
    assert found.within_target == 0.9


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"17", b'{"time": 1}', b"\xff", b'"x"'])
def test_lines_that_are_not_ours_are_counted_and_passed_over(tmp_path: Path, text: bytes) -> None:
    assert parse(text) is None
    log = Log([write(tmp_path / "log", [text + b"\n", line(0.1)])])
    assert len(list(log)) == 1
    assert log.unreadable == 1


def test_rotated_files_are_read_compressed_too(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "old.gz", "wb") as file:
        file.write(line(0.1))
    paths = [tmp_path / "old.gz", write(tmp_path / "log", [line(0.2)])]
    assert [seen.ttft for seen in Log(paths)] == [0.1, 0.2]


@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 5)), min_size=1, max_size=50))
def test_weights_mean_the_same_as_repetition(measured: list[tuple[float, int]]) -> None:
    weighted, repeated = Sample(), Sample()
    for value, weight in measured:
        weighted.add(value, weight)
        for _ in range(weight):
            repeated.add(value, 1.0)
    shares = (0.01, 0.5, 0.9, 0.95, 0.99, 1.0)
    assert weighted.quantiles(shares) == repeated.quantiles(shares)
    assert weighted.mean == pytest.approx(repeated.mean)
    assert weighted.weight == repeated.weight


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_is_the_least_value_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    sample = Sample()
    for value in values:
        sample.add(value, 1.0)
    found = sample.quantiles((share,))
    expected = np.quantile(values, share, method="inverted_cdf")
    assert found == [pytest.approx(float(expected))]


def test_of_nothing_nothing_is_said() -> None:
    empty = Sample()
    assert (empty.mean, empty.quantiles((0.5,)), empty.share_within(1.0)) == (None, None, None)
