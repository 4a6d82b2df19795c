"""What the command line makes of a trace, and what is found in a trace's arrivals."""

import json
from pathlib import Path

import pytest

from bench.load.arrivals import Arrivals, Rhythm
from bench.load.bursts import bursts
from bench.load.flags import rates
from bench.load.workloads import CLOSED_REQUESTS, DURATION, Limits, Workload
from tests.bench.test_load_parts import sample

ROWS = [(0, 100, 7, [1, 2]), (1000, 3000, 9, [1, 3]), (2000, 40, 5, [4]), (60_000, 9, 1, [])]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS))
    return path


def workload(limits: Limits | None = None, **more) -> Workload:
    rhythm = Arrivals(1.0, Rhythm.CONSTANT)
    return Workload(rhythm, limits or Limits(), prompt="50", output="3", **more)


def test_without_a_trace_the_rhythm_and_the_sizes_are_drawn():
    jobs = workload(Limits(requests=4)).jobs(2.0)
    assert [(job.at, job.prompt, job.output) for job in jobs] == [
        (at, 50, 3) for at in (0.5, 1.0, 1.5, 2.0)
    ]


def test_something_always_bounds_a_run():
    assert workload().jobs(10.0)[-1].at == pytest.approx(DURATION, abs=0.2)
    assert len(workload(Limits(closed=True)).jobs(None)) == CLOSED_REQUESTS
    assert len(workload(Limits(requests=7, duration=0.1, closed=True)).jobs(None)) == 7


def test_a_trace_is_replayed_as_recorded_and_its_time_can_be_scaled(trace: Path):
    assert [job.at for job in workload(trace=trace).jobs(None)] == [0.0, 1.0, 2.0]
    faster = workload(trace=trace, speed=4.0).jobs(None)
    assert [job.at for job in faster] == [0.0, 0.25, 0.5, 15.0]
    assert faster[1].prefix == (1, 3)


def test_a_rate_stretches_a_trace_to_that_mean(trace: Path):
    jobs = workload(Limits(duration=1e6), trace=trace).jobs(0.5)
    assert [job.at for job in jobs] == pytest.approx([0.0, 2 / 15, 4 / 15, 8.0])


def test_a_trace_may_give_its_sizes_only(trace: Path):
    jobs = workload(Limits(requests=200), trace=trace, resample=True).jobs(10.0)
    assert [job.at for job in jobs[:3]] == pytest.approx([0.1, 0.2, 0.3])
    assert {(job.prompt, job.output) for job in jobs} == {row[1:3] for row in ROWS}
    assert {job.prefix for job in jobs} == {()}


def test_an_empty_trace_is_said(tmp_path: Path):
    empty = tmp_path / "empty.csv"
    empty.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    with pytest.raises(ValueError, match="no requests"):
        workload(trace=empty).jobs(None)


def test_the_rates_of_a_sweep():
    assert rates("5,7.5", None) == [5.0, 7.5]
    for wrong, concurrency in (("5,x", None), ("0,1", None), ("5", 3)):
        with pytest.raises(ValueError, match=r".+"):
            rates(wrong, concurrency)


def test_a_burst_is_several_long_prompts_within_a_second():
    def at(*times: float, tokens: int = 3000):
        return [sample(0, 0.1, intended=time, prompt_tokens=tokens) for time in times]

    assert bursts(at(1.0, 1.2, 1.4)) == []
    assert bursts(at(1.0, 1.2, 1.4, 1.6, tokens=2048)) == []
    assert bursts(at(1.0, 1.2, 1.4, 2.1)) == []
    assert bursts(at(1.0, 1.2, 1.4, 1.6, 1.8)) == [(1.0, 1.8)]
    assert bursts(at(5.0, 5.1, 5.2, 5.3, 1.0, 1.2, 1.4, 1.6)) == [(1.0, 1.6), (5.0, 5.3)]
