"""Runs of the load generator against the simulated server, over real sockets."""

import asyncio
import csv
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from rich.console import Console
from typer.testing import CliRunner

from backends.client import Client
from backends.types import BackendSpec, Timeouts
from bench.__main__ import app
from bench.engine import EngineSpec
from bench.fake_vllm import Mode
from bench.load.alarm import Alarm
from bench.load.discover import LoadFailed
from bench.load.exchange import Exchanger, Request
from bench.load.plan import Lengths
from bench.load.sample import Sample
from bench.load.session import Outcome, Settings, run_load
from bench.load.target import Api, Target
from bench.workload import Job
from tests.bench.conftest import Fake, make_fake
from tests.bench.schemas import schema
from tests.bench.waiting import reaches
from tests.sites import site

QUIET = Console(quiet=True)


def at_intervals(count: int, gap: float, prompt: int = 60, output: int = 3) -> list[Job]:
    return [Job(number * gap, prompt, output) for number in range(count)]


async def run(url: str, jobs: list[Job], **settings) -> Outcome:
    timeouts = Timeouts(connect=2.0, first_token=5.0, token_gap=5.0, total=10.0)
    return await run_load(Settings(url, timeouts, Lengths(), **settings), jobs, QUIET)


@pytest.mark.parametrize("api", list(Api))
@pytest.mark.parametrize("stream", [True, False])
async def test_every_prompt_has_the_tokens_that_were_planned(fake: Fake, api: Api, stream: bool):
    jobs = [Job(0.01 * n, tokens, 4) for n, tokens in enumerate((40, 333, 2048, 100))]
    outcome = await run(fake.server.url + "/v1", jobs, api=api, stream=stream)
    samples = sorted(outcome.samples, key=lambda sample: sample.number)
    assert [sample.error for sample in samples] == [""] * 4
    assert [sample.prompt_tokens for sample in samples] == [40, 333, 2048, 100]
    assert [sample.output_tokens for sample in samples] == [4] * 4
    assert [sample.service_class for sample in samples] == ["short", "short", "long", "short"]
    assert not outcome.served.guessed
    assert [sample.ttft is not None for sample in samples] == [stream] * 4


async def test_a_prefix_that_jobs_share_is_found_in_the_engines_cache():
    async with make_fake() as fake:
        jobs = [Job(0.1, 1600, 1, prefix=(1, 2, 3)), Job(0.4, 1600, 1, prefix=(1, 2, 9))]
        await run(fake.server.url, jobs, api=Api.COMPLETIONS)
        assert fake.server.app.engine.cached_tokens >= 1008


async def test_servers_get_requests_in_turn(fake: Fake):
    async with make_fake() as other:
        outcome = await run(fake.server.url, at_intervals(10, 0.01), also=(other.server.url,))
        assert [sample.error for sample in outcome.samples] == [""] * 10
        # The first of all asked for the length of the template.
        assert (fake.server.app.received, other.server.app.received) == (6, 5)


async def test_what_is_longer_than_the_context_is_left_out_and_counted():
    async with make_fake(max_model_len=500) as fake:
        outcome = await run(fake.server.url, [Job(0.0, size, 2) for size in (100, 499, 500, 900)])
    assert [sample.error for sample in outcome.samples] == ["", ""]
    assert outcome.left_out == 2


async def stalled(fake: Fake, jobs: list[Job], **settings) -> list[float]:
    """The TTFTs over 150 ms of a run in which the engine stalls for 0.5 s after a few requests."""
    app = fake.server.app
    before = app.received
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(fake.server.url, jobs, **settings))
        await reaches(lambda: app.received >= before + 4)
        app.engine.stall(0.5)
    samples = running.result().samples
    return [sample.ttft for sample in samples if sample.ttft is not None and sample.ttft > 0.15]


@pytest.mark.slow
async def test_an_open_loop_blames_a_stall_on_all_who_met_it():
    """Twenty requests a second and half a second of silence, which a closed loop sees once."""
    async with make_fake(engine=EngineSpec(prefill_per_token=1e-5)) as fake:
        met = await stalled(fake, at_intervals(18, 0.05, output=1))
        assert 5 <= len(met) <= 11
        assert max(met) > 0.4
        assert len(await stalled(fake, at_intervals(100, 0.0, output=1), concurrency=1)) == 1


async def test_a_request_that_is_sent_late_counts_from_when_it_should_have_been(fake: Fake):
    client = Client(BackendSpec("target", fake.server.url))
    exchanger = Exchanger(Target(fake.server.url, "forebay-demo"), client, Timeouts(), began=0.0)
    intended = exchanger.now() - 0.5
    sample = await exchanger.send(Request(0, intended, ["Hello"], 25, 1, "short"))
    await client.close()
    assert sample.error == ""
    assert sample.lateness >= 0.5
    assert sample.ttft is not None
    assert sample.ttft > 0.5
    assert sample.e2e > 0.5


async def test_a_closed_loop_keeps_so_many_requests_open():
    async with make_fake(engine=EngineSpec(decode_per_seq=1e-3)) as fake:
        outcome = await run(fake.server.url, at_intervals(30, 0.0, output=10), concurrency=3)
    changes = sorted(change for s in outcome.samples for change in ((s.sent, 1), (s.ended, -1)))
    now, most = 0, 0
    for _, change in changes:
        now += change
        most = max(most, now)
    assert len(outcome.samples) == 30
    assert most == 3
    assert all(sample.lateness < 0.1 for sample in outcome.samples)


@pytest.mark.parametrize(("at", "warm_up"), [(100.0, 60.0), (0.0, 0.21), (0.0, 0.0)])
async def test_a_closed_loop_s_warm_up_goes_by_the_run_s_time(at: float, warm_up: float):
    async with make_fake(engine=EngineSpec(decode_per_seq=1e-2)) as fake:
        jobs = [Job(at, 60, 10)] * 6
        outcome = await run(fake.server.url, jobs, concurrency=1, warm_up=warm_up)
    marked = [sample.warm_up for sample in outcome.samples]
    assert marked == [max(sample.intended, 0.0) < warm_up for sample in outcome.samples]
    assert marked[0] is (warm_up > 0)
    assert marked[-1] is (warm_up == 60.0)


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        (Mode.BUSY, "http_503"),
        (Mode.REFUSE, "stream_broken"),
        (Mode.RESET_MID_STREAM, "stream_broken"),
    ],
)
async def test_each_failure_has_its_name(fake: Fake, mode: Mode, error: str):
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run(fake.server.url, [Job(0.0, 50, 4), Job(0.3, 50, 4)]))
        await reaches(lambda: fake.server.app.received == 2)
        fake.server.app.fail(mode)
    assert [sample.error for sample in running.result().samples] == ["", error]


async def test_a_server_that_is_gone_is_a_failed_connection(fake: Fake):
    jobs = at_intervals(12, 0.05, output=1)
    settings = Settings(fake.server.url, Timeouts(connect=2.0), Lengths())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_load(settings, jobs, QUIET))
        await reaches(lambda: fake.server.app.received >= 4)
        await fake.stop()
    kinds = {sample.error for sample in running.result().samples}
    assert "connect_failed" in kinds
    assert "" in kinds


@asynccontextmanager
async def answering(status: int, headers: dict[str, str], body: str) -> AsyncIterator[str]:
    """A server whose first completion is well and whose others are as told."""
    answered = 0

    async def completions(_: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered == 1:
            return web.Response(text="data: [DONE]\n\n")
        return web.Response(status=status, headers=headers, text=body)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", completions)
    app.router.add_get("/v1/models", models)
    async with site(app) as url:
        yield url


async def only_sample(url: str) -> Sample:
    outcome = await run(url, [Job(0.0, 50, 4)])
    assert outcome.served.guessed
    return outcome.samples[0]


async def test_a_429_is_kept_with_its_retry_after():
    async with answering(429, {"retry-after": "7"}, "{}") as url:
        sample = await only_sample(url)
    assert (sample.error, sample.status, sample.retry_after) == ("http_429", 429, 7.0)


async def test_the_gateways_headers_are_kept():
    headers = {
        "x-forebay-class": "special",
        "x-forebay-backend": "b1",
        "server-timing": "read;dur=1.5, queue;dur=20",
    }
    body = 'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'
    async with answering(200, headers, body) as url:
        sample = await only_sample(url)
    assert (sample.service_class, sample.backend) == ("special", "b1")
    assert sample.stages == (("read", 0.0015), ("queue", 0.02))
    assert sample.output_tokens == 1


async def test_a_model_that_is_not_served_ends_the_run_before_it_begins(fake: Fake):
    with pytest.raises(LoadFailed, match=r"http_404; .*'other': --model takes one of forebay-demo"):
        await run(fake.server.url, at_intervals(1, 0.0), model="other")


async def test_an_address_where_nothing_listens_is_said(unused_port: int):
    with pytest.raises(LoadFailed, match="/v1/models"):
        await run(f"http://127.0.0.1:{unused_port}", at_intervals(1, 0.0))


async def test_the_alarm_is_never_early_and_seldom_a_millisecond_late():
    lateness = []
    with Alarm() as alarm:
        for _ in range(40):
            at = time.monotonic() + 0.0033
            await alarm.until(at)
            lateness.append(time.monotonic() - at)
        await alarm.until(time.monotonic() - 1.0)
    assert min(lateness) >= 0.0
    assert sorted(lateness)[10] < 0.0008


COMMAND = (sys.executable, "-m", "bench", "load")


async def test_the_command_writes_a_table_json_and_csv(fake: Fake, tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *COMMAND, fake.server.url, "--rate", "40", "--requests", "30", "--warm-up", "0.2",
        "--prompt", "50@0.8,1500@0.2", "--output", "2", "--json", tmp_path / "r.json",
        "--csv", tmp_path / "r.csv", stdout=PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    assert "TTFT" in said.decode()
    document = json.loads((tmp_path / "r.json").read_text())
    schema("load").validate(document)
    warm_up, measured = (document["detail"][part]["requests"] for part in ("warm_up", "all"))
    assert warm_up > 0
    assert warm_up + measured == 30
    assert document["summary"]["short_ttft_ms_p50"] > 0
    assert document["environment"]["cores"] >= 1
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert {row["prompt_tokens"] for row in rows} == {"50", "1500"}
    assert all(float(row["ttft"]) > 0 for row in rows)


@pytest.mark.slow
async def test_a_sweep_writes_a_step_for_each_rate_and_its_pictures(fake: Fake, tmp_path: Path):
    process = await asyncio.create_subprocess_exec(
        *COMMAND, fake.server.url, "--sweep", "40,20", "--requests", "8", "--prompt", "50",
        "--output", "2", "--json", tmp_path / "r.json", "--pictures", tmp_path, stdout=PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    assert "latency against load" in said.decode()
    document = json.loads((tmp_path / "r.json").read_text())
    schema("load").validate(document)
    assert [step["rate"] for step in document["detail"]["steps"]] == [20.0, 40.0]
    assert document["summary"]["rate_40_ttft_ms_p99"] > 0
    # The first block of the template and the question for its length: no prompt is shared.
    assert fake.server.app.engine.cached_tokens <= 16 * 18
    assert (tmp_path / "latency-against-load.png").stat().st_size > 10_000


@pytest.mark.slow
async def test_ctrl_c_shows_what_was_measured(tmp_path: Path):
    async with make_fake() as fake:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, fake.server.url, "--rate", "50", "--duration", "60",
            "--prompt", "20", "--json", tmp_path / "r.json", stdout=PIPE,
        )  # fmt: skip
        await reaches(lambda: fake.server.app.received >= 20)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(5):
            said, _ = await process.communicate()
    assert process.returncode == 0
    assert "TTFT" in said.decode()
    assert 10 <= json.loads((tmp_path / "r.json").read_text())["summary"]["completed"] < 3000


@pytest.mark.parametrize("flags", [["--prompt", "none"], ["--rate", "0"], ["--requests", "0"]])
def test_a_wrong_flag_ends_it_with_a_word(flags: list[str]):
    ended = CliRunner().invoke(app, ["load", "http://127.0.0.1:9", *flags])
    assert isinstance(ended.exception, SystemExit)
    assert str(ended.exception.code).startswith("bench load: ") or "bench load: " in ended.output
