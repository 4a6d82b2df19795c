"""The soak and the stall measurement: real short runs, and the figures made of what they found."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.engine import SERIAL
from bench.overhead import soak
from bench.overhead.soak import Quiet, Soaked
from bench.overhead.source import chosen
from bench.overhead.stall import quantile
from tests.bench.conftest import make_fake

INF = float("inf")


def run(*command: str) -> dict[str, dict[str, float]]:
    file = Path(command[-1])
    ended = CliRunner().invoke(app, list(command), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    found: dict[str, dict[str, float]] = json.loads(file.read_text())
    return found


@pytest.mark.slow
def test_a_short_soak_counts_what_it_sent_and_reads_every_process(tmp_path: Path) -> None:
    found = run(
        *("soak", "--requests", "300", "--slice-seconds", "0.4", "--quiet-seconds", "0.5"),
        *("--json", str(tmp_path / "soak.json")),
    )
    summary, detail = found["summary"], found["detail"]
    assert summary["requests"] >= 300
    assert {"rss_growth_mb", "fd_growth", "task_growth", "process_1_rss_growth_mb"} <= set(summary)
    assert detail["tasks"][0] > 0  # type: ignore[index]
    assert detail["descriptors"][0] > 10  # type: ignore[index]


@pytest.mark.slow
async def test_a_given_server_is_soaked_as_the_instant_engine_is(tmp_path: Path) -> None:
    async with make_fake(engine=replace(SERIAL, prefill_per_token=1e-6)) as fake:
        source = chosen(fake.server.url, None, real=False)
        plan = soak.Plan(100, each=0.4, quiet=0.3, workers=1, source=source)
        found = await soak.measure(plan, tmp_path)
        answered = fake.server.app.engine.generated_tokens
    assert found.requests >= 100
    assert answered > 4 * 100, "by that server, with four tokens each at least"
    assert found.settled.descriptors > 10
    assert found.ended.tasks > 0
    assert soak.report(found, source).detail["engine"] == fake.server.url


def test_growth_is_what_came_after_the_first_tenth() -> None:
    sizes = [(count, [100_000_000 + 1_000_000 * count // 100, 50_000_000]) for count in
             range(100, 1100, 100)]  # fmt: skip
    sizes.insert(0, (50, [1, 1]))  # while it fills its caches: not counted
    found = Soaked([1, 2], sizes, Quiet(20, 5), Quiet(23, 4), 10.0)
    summary = soak.report(found).summary
    assert summary["process_0_rss_growth_mb"] == 9.0
    assert summary["process_1_rss_growth_mb"] == 0.0
    assert summary["rss_growth_percent"] == pytest.approx(8.91, abs=0.01)
    assert (summary["fd_growth"], summary["task_growth"]) == (3, -1)
    assert summary["requests_per_s"] == 100.0


@pytest.mark.slow
def test_a_short_run_tells_the_stalls_of_both_gateways(tmp_path: Path) -> None:
    found = run(
        *("stall", "--streams", "60", "--seconds", "3", "--json", str(tmp_path / "stall.json"))
    )
    assert found["summary"].keys() >= {
        *("streams_held", "stall_p99_ms", "idle_stall_p99_ms"),
        *("aiohttp_streams_held", "aiohttp_stall_p99_ms"),
    }
    for gateway in ("forebay", "aiohttp"):
        one = found["detail"][f"{gateway}_60"]
        assert one["samples"] > 20  # type: ignore[index]
        assert one["tokens_per_s"] == pytest.approx(60 / 0.025, rel=0.5)  # type: ignore[index]


def test_a_quantile_lies_linearly_within_its_bucket() -> None:
    assert quantile({0.001: 50, 0.002: 100, INF: 100}, 0.75) == pytest.approx(0.0015)
    assert quantile({0.001: 100, 0.002: 100, INF: 100}, 0.5) == pytest.approx(0.0005)
    assert quantile({0.001: 0, 0.002: 1, INF: 100}, 0.99) == 0.002
