"""Candidates as processes: started with their flags, measured through a gateway, ended."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backends.managed.supervisor import ManagedSettings
from backends.plans.model import Engine, Flag
from bench.demo import MODEL
from bench.load.sample import Sample
from bench.stack import ENGINE
from bench.tuning.managed import Managed, window_of
from bench.tuning.space import Flags
from bench.tuning.traffic import LONG, SHORT, Traffic

TRAFFIC = Traffic(rate=100.0, requests=20, prompt="60@0.8,1500@0.2", output="2")


def managed(folder: Path, *command: str) -> Managed:
    flags = (Flag("no-enable-prefix-caching", True, ""), Flag("max-num-seqs", 99, "a plan's own"))
    return Managed(
        Engine("engine", MODEL, ("short",), 1, flags=flags),
        ManagedSettings(command or ENGINE, grace=2.0, backoff_first=0.05),
        TRAFFIC,
        folder,
        ready_within=60.0,
    )


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.slow
async def test_a_candidate_runs_with_its_flags_and_is_measured(tmp_path: Path) -> None:
    async with asyncio.timeout(90):
        async with managed(tmp_path).started(Flags(3, 512, 128)) as engine:
            (flags,) = (managed.engine.flags for managed in engine.stack.node.engines.values())
            window = await engine.window(0)
            pids = [managed.pid for managed in engine.stack.node.engines.values()]
    named = {flag.name: flag.value for flag in flags}
    assert named["max-num-seqs"] == 3
    assert named["long-prefill-token-threshold"] == 128
    assert "no-enable-prefix-caching" in named, "what is not searched stays"
    assert (window.requests, window.failed) == (20, 0)
    shorts = sum(TRAFFIC.counts(job) for job in TRAFFIC.jobs(0))
    assert len(window.ttfts) == shorts < 20
    assert 0.0 < window.kv_usage < 1.0
    assert not any(pid is not None and is_running(pid) for pid in pids)


async def test_an_engine_that_refuses_its_flags_is_told_of(tmp_path: Path) -> None:
    refusing = (sys.executable, "-c", "import sys; sys.exit('no memory for the cache')")
    async with asyncio.timeout(90):
        async with managed(tmp_path, *refusing).started(Flags(3, 512)) as engine:
            window = await engine.window(0)
    assert window.requests == 0
    assert "no memory for the cache" in window.refused


def test_a_window_counts_its_class_and_every_failure() -> None:
    def sample(service_class: str, error: str = "", ttft: float = 0.1) -> Sample:
        return Sample(
            0, service_class, False, 1.0, 1.0, 3.0,
            error=error, first_token=None if error else 1.0 + ttft,
        )  # fmt: skip

    samples = [sample(SHORT), sample(SHORT, ttft=2.0), sample(LONG), sample(SHORT, "http_503")]
    found = window_of(samples, TRAFFIC, 0.4, 2)
    assert (found.requests, found.failed, found.good) == (4, 1, 1)
    assert found.ttfts == (0.1, 2.0)
    assert (found.seconds, found.kv_usage, found.preemptions) == (2.0, 0.4, 2)
    assert len(window_of(samples, replace(TRAFFIC, service_class=LONG), 0.4, 2).ttfts) == 1
