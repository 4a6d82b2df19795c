"""`bench overhead` on loopback: its figures are there, plausible, and made as they say."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.engine import SERIAL
from bench.overhead.accounts import cpu_seconds, rss_bytes, tree
from bench.overhead.cores import core_of, pinned
from bench.overhead.loads import LOADS, Result
from bench.overhead.measure import Found, Plan, measure
from bench.overhead.source import chosen
from bench.overhead.summary import report
from bench.peers import commands
from tests.bench.conftest import make_fake

FIGURES = {
    "added_ttft_ms_p50", "added_ttft_ms_p50_c64", "added_ttft_ms_p99_c64",
    "cpu_us_per_request", "cpu_us_per_stream", "cpu_us_per_chunk", "requests_per_s", "core_share",
}  # fmt: skip


def result(requests: int, cpu: float, *, events: int = 0, beyond: float = 0.0) -> Result:
    return Result(requests, events, 2.0, beyond, beyond * 2, 0.0, cpu, 0.0)


def loads(scale: float) -> dict[str, list[Result]]:
    """One round of a gateway that costs 50 µs a request, 100 µs a stream and 20 µs a chunk."""
    return {
        "one": [result(1_000, 0.1 * scale, beyond=0.3 * scale)],
        "streams": [result(500, 0.1 * scale, beyond=0.5 * scale)],
        "saturated": [result(20_000, 20_000 * 50e-6 * scale)],
        "few_chunks": [result(1_000, (1_000 * 100e-6 + 12_000 * 20e-6) * scale, events=12_000)],
        "many_chunks": [result(90, (90 * 100e-6 + 9_200 * 20e-6) * scale, events=9_200)],
    }


def test_the_figures_are_the_costs_less_what_the_engine_itself_costs() -> None:
    rounds = {"direct": loads(0.1), "forebay": loads(1), "vllm-router": loads(2)}
    memory = {"forebay": [60_000_000, 20_000_000], "vllm-router": [9_000_000]}
    found = Found(rounds, memory, 7, 1)
    done = report(found, ["nginx"])
    expected = {
        "added_ttft_ms_p50": 0.27,
        "added_ttft_ms_p50_c64": 0.45,
        "added_ttft_ms_p99_c64": 0.9,
        "cpu_us_per_request": 50,
        "cpu_us_per_stream": 100,
        "cpu_us_per_chunk": 20,
        "requests_per_s": 10_000,
        "core_share": 0.5,
        "rss_mb": 80,
    }
    for name, value in expected.items():
        assert done.summary[name] == pytest.approx(value)
        assert done.summary[f"forebay_{name}"] == done.summary[name]
    assert done.summary["vllm_router_cpu_us_per_chunk"] == pytest.approx(40)
    assert done.detail["not_run"] == ["nginx"]
    assert (done.detail["prompts_by_ids"], done.detail["prompts_by_text"]) == (7, 1)


def test_the_median_of_rounds_is_taken_and_their_spread_told() -> None:
    three = {name: [one, one, one] for name, (one,) in loads(1).items()}
    three["saturated"] = [result(20_000, cpu) for cpu in (5.0, 1.0, 1.2)]
    done = report(Found({"direct": three}, {}, 0, 0), [])
    assert done.summary["direct_cpu_us_per_request"] == pytest.approx(60)
    assert done.detail["spread"]["direct_cpu_us_per_request"] == [50, 250]


def test_the_accounts_are_of_the_whole_tree_and_count_what_was_used() -> None:
    burn = (
        "import sys, time\nwhile time.process_time() < 0.3: pass\n"
        "print('done', flush=True); sys.stdin.read()"
    )
    parent = (
        "import subprocess, sys; "
        f"child = subprocess.Popen([sys.executable, '-c', {burn!r}], stdout=subprocess.PIPE); "
        "print(child.pid, child.stdout.readline(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline().split()[0])
        pids = tree(process.pid)
        assert pids == [process.pid, child]
        assert 0.3 <= cpu_seconds(pids) < 2
        assert rss_bytes(child) > 1_000_000
        process.communicate()
    assert cpu_seconds([process.pid]) == 0
    assert rss_bytes(process.pid) == 0


def test_what_is_started_pinned_stays_so_and_the_bench_does_not() -> None:
    before = os.sched_getaffinity(0)
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    with pinned(core_of(gateway=True)):
        shown = subprocess.check_output([sys.executable, "-c", show], text=True)
    assert json.loads(shown) == [max(before)]
    assert os.sched_getaffinity(0) == before


def test_a_peer_that_is_not_on_the_path_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not commands.is_installed("nginx")
    assert commands.is_installed("aiohttp")
    (tmp_path / "nginx").touch(mode=0o755)
    assert commands.is_installed("nginx")


@pytest.mark.slow
def test_a_quick_run_writes_every_figure_of_forebay_and_the_plain_design(tmp_path: Path) -> None:
    file = tmp_path / "overhead.json"
    command = ["overhead", "--quick", "--seconds", "0.6", "--json", str(file)]
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    document = json.loads(file.read_text())
    summary, detail = document["summary"], document["detail"]
    assert summary.keys() >= FIGURES | {"rss_mb"}
    for target in ("direct", "forebay", "aiohttp"):
        assert summary.keys() >= {f"{target}_{name}" for name in FIGURES}
    for target in ("forebay", "aiohttp"):
        assert 10 < summary[f"{target}_cpu_us_per_request"] < 100_000
        assert 0 < summary[f"{target}_core_share"] < 1.2
        assert 15 < summary[f"{target}_rss_mb"] < 1_500
    assert summary["direct_cpu_us_per_request"] == 0
    assert set(detail["not_run"]) == set(commands.PEERS) - {"forebay", "aiohttp"}
    assert document["environment"]["cores"] >= 1
    rounds = detail["rounds"]["forebay"]
    assert rounds.keys() == LOADS.keys()
    # 8 tokens, after the role and before [DONE].
    events = rounds["one"][0]["events"] / rounds["one"][0]["requests"]
    assert events == pytest.approx(10, rel=0.1)
    # As ids or as text, as Forebay has measured to be quicker with this engine.
    assert detail["prompts_by_ids"] + detail["prompts_by_text"] > 100


@pytest.mark.slow
async def test_a_given_server_takes_the_place_of_the_instant_engine(tmp_path: Path) -> None:
    quick = replace(SERIAL, prefill_per_token=1e-6)
    async with make_fake(engine=quick, model="theirs") as fake:
        source = chosen(fake.server.url, None, real=False)
        found = await measure(Plan(("aiohttp",), 1, 0.5, source), tmp_path)
        generated = fake.server.app.engine.generated_tokens
    done = report(found, [], source)
    for target in ("direct", "aiohttp"):
        assert done.summary.keys() >= {f"{target}_{name}" for name in FIGURES}
        one = found.rounds[target]["one"][0]
        assert one.ttft_p50 == one.beyond_p50 > 0, "it says of itself no time that it kept it"
        # 8 tokens, the role and [DONE]; of the first request and the last a part is counted.
        assert abs(one.events - 10 * one.requests) <= 10
    assert 10 < done.summary["aiohttp_cpu_us_per_request"] < 100_000
    assert generated > 8 * found.rounds["aiohttp"]["saturated"][0].requests
    assert done.detail["engine"] == fake.server.url
    assert "requests_per_s" in done.detail["not_of_the_gateway"]
    assert done.detail["prompts_by_ids"] is None


def test_of_the_instant_engine_every_figure_is_the_gateways() -> None:
    done = report(Found({"direct": loads(1)}, {}, 1, 1), [])
    assert done.detail["engine"] == "instant"
    assert done.detail["not_of_the_gateway"] == {}


def test_a_given_server_that_is_not_there_ends_the_run(unused_port: int) -> None:
    ended = CliRunner().invoke(app, ["overhead", "--backend", f"http://127.0.0.1:{unused_port}"])
    assert ended.exit_code == 1
    assert str(unused_port) in ended.output


def test_one_engine_is_asked_for() -> None:
    ended = CliRunner().invoke(app, ["overhead", "--real", "--backend", "http://127.0.0.1:1"])
    assert ended.exit_code == 2
    assert "not both" in ended.output


def test_a_run_that_is_told_to_end_leaves_no_process_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "overhead", "--quick"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        log = "forebay-overhead-*/engine.log"
        while not list(tmp_path.glob(log)):
            assert process.poll() is None
        while len(pids := tree(process.pid)) < 2:
            assert process.poll() is None
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert said == "overhead: stopped\n"
    assert process.returncode == 1
    assert not any(rss_bytes(pid) for pid in pids)


def test_an_unknown_peer_is_refused() -> None:
    ended = CliRunner().invoke(app, ["overhead", "--peers", "forebay,squid"])
    assert ended.exit_code == 2
    assert "squid" in ended.output
