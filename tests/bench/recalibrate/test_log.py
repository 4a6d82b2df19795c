"""The log is read as the gateway writes it, and only its busiest parts are kept."""

import gzip
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from bench.recalibrate.log import SLOT, NothingLogged, SampledLog, busiest, parse
from gateway.log import render
from tests.bench.recalibrate.logs import SPEC, START, line, played, traffic, write
from tests.gateway.records import RECORD


def test_the_gateways_own_lines_are_understood() -> None:
    stages = {"read": 0.01, "tokenize": 0.02, "queue": 0.1, "connect": 0.005, "backend": 0.2}
    record = replace(RECORD, stages=stages, ttft=0.335, e2e=2.0, output_tokens=40)
    found = parse(render(record))
    assert found is not None
    assert found.first is not None
    assert (found.prompt, found.output, found.backend) == (12, 40, "b")
    assert found.sent - found.arrived == pytest.approx(0.135)
    assert found.first - found.sent == pytest.approx(0.2)
    assert found.ended - found.arrived == pytest.approx(2.0)


@pytest.mark.parametrize(
    "change",
    [{"outcome": "shed"}, {"backend": ""}, {"prompt_tokens": 0}, {"e2e": None}, {"stages": None}],
)
def test_requests_that_did_not_complete_and_broken_lines_are_passed_over(
    change: dict[str, object],
) -> None:
    (one,) = played(traffic(1, 1.0), [SPEC])
    whole = orjson.loads(line(one))
    assert parse(orjson.dumps(whole)) is not None
    assert parse(orjson.dumps(whole | change)) is None
    assert parse(orjson.dumps(whole)[:40]) is None


def test_the_fullest_parts_are_taken_whole_in_the_order_of_time(tmp_path: Path) -> None:
    """Three parts with 40, 90 and 60 requests: 160 allow the last two."""
    requests = played(traffic(90, 5.0), [SPEC])
    parts = [
        [replace(r, arrived=r.arrived + n * SLOT, ended=START + n * SLOT + 1) for r in requests]
        for n in range(3)
    ]
    path = write(tmp_path / "a.jsonl", [*parts[0][:40], *parts[1], *parts[2][:60]])
    found = busiest([path], START, 160)
    assert [len(part) for part in found] == [90, 60]
    assert all(part == sorted(part, key=lambda one: one.arrived) for part in found)
    assert [len(part) for part in busiest([path], START, 10)] == [90], "one part at least"
    assert [len(part) for part in busiest([path], START + 2 * SLOT, 160)] == [60], "since then"


def test_rotated_files_are_read_compressed_too(tmp_path: Path) -> None:
    requests = played(traffic(30, 5.0), [SPEC])
    old, new = tmp_path / "old.jsonl.gz", write(tmp_path / "new.jsonl", requests[15:])
    old.write_bytes(gzip.compress(b"".join(map(line, requests[:15]))))
    assert sum(map(len, busiest([old, new], START, 1000))) == 30


def test_a_sampled_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(render(RECORD, weight=10.0))
    with pytest.raises(SampledLog, match="request_log_sample"):
        busiest([path], START, 10)


def test_an_empty_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingLogged, match="no completed request"):
        busiest([write(tmp_path / "a.jsonl", [])], START, 10)
