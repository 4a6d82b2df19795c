"""`forebay recalibrate` from a log to a setting: everything as an operator runs it."""

import asyncio
import time
from pathlib import Path

import orjson
import pytest
from redis import Redis
from typer.testing import CliRunner, Result

from bench.costs import read
from bench.recalibrate.fleet import Situation, play
from bench.recalibrate.log import SLOT
from bench.workload import Job
from gateway.cli import app
from gateway.commands.recalibrate import logs as logs_of
from gateway.config import Config
from gateway.control import published
from gateway.control.store import connect
from scheduler.model import ClassSpec
from tests.bench.recalibrate import logs
from tests.redis_server import url_of

BACKENDS = {
    name: {"url": "http://h:1", "classes": [name.partition("-")[0]]}
    for name in ("short-0", "long-0")
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two pools; the long one is crowded by prompts that the short one could take, were its bound
    2,048 tokens. They are of the last whole ten minutes, so that they are one part of the log."""
    fleet = Situation(
        (ClassSpec("short", 1024, ttft_target=0.6), ClassSpec("long")),
        {"short-0": (("short",), 64), "long-0": (("long",), 64)},
    )
    sizes = [8000 if n % 16 == 15 else 1500 if n % 2 else 200 for n in range(500)]
    jobs = [Job(n * 0.12, size, 12) for n, size in enumerate(sizes)]
    requests = [logs.seen(outcome) for outcome in play(fleet, logs.SPEC, 1024, jobs)]
    shifted = (time.time() // SLOT - 1) * SLOT
    return logs.write(tmp_path / "requests.jsonl", requests, shifted=shifted)


def recalibrate(log: Path, *options: str) -> Result:
    result = log.parent / "costs.json"
    command = ["recalibrate", "--log", str(log), "--result", str(result), *options]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_file_gets_a_proposal_and_costs_for_the_next_plan(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = log.parent / "gateway.yaml"
    config.write_text(orjson.dumps({"backends": BACKENDS}).decode())
    result = recalibrate(log, "--config", str(config))
    assert result.exit_code == 0, result.output
    assert "class:short max_prompt_tokens: 1024 → " in result.stdout
    assert "nothing was changed" in result.stdout
    assert "the fitted engine is off by" in capfd.readouterr().out
    spec = read(log.parent / "costs.json", logs.SPEC)
    assert spec.prefill_per_token == pytest.approx(logs.SPEC.prefill_per_token, rel=0.15)
    refused = recalibrate(log, "--config", str(config), "--apply")
    assert (refused.exit_code, "leave --config away" in refused.output) == (1, True)


def test_a_folder_stands_for_the_logs_in_it(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "engine-costs.json"):
        (tmp_path / name).touch()
    single = tmp_path / "elsewhere.log"
    assert logs_of([single, tmp_path]) == [
        single,
        tmp_path / "a.jsonl.gz",
        tmp_path / "b.jsonl",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no request log in"):
        logs_of([tmp_path / "empty"])


def test_what_redis_says_is_in_force_is_what_is_judged_and_tried(log: Path, redis: Redis) -> None:
    """In the last second too little came to compare a trial with: there is none."""

    async def publish() -> None:
        client = connect(url_of(redis))
        await published.publish(client, Config.model_validate({"backends": BACKENDS}))
        await client.aclose()

    asyncio.run(publish())
    result = recalibrate(log, "--redis", url_of(redis), "--apply", "--watch", "1s")
    assert result.exit_code == 1
    assert "class:short max_prompt_tokens: 1024 → " in result.stdout
    assert "not tried: only" in result.output
    assert not redis.exists("forebay:class:short")
