"""`forebay up --apply`: a recommendation is carried out on a real engine process, found to be a
regression, and taken back."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml

from bench.demo import free_port
from tests.integration.test_up import BODY, Up, up, write_plan

# Steps of 15 ms are over the target of 5 ms, so the rule takes memory away; with less of it they
# take 90 ms, as if requests had to wait for KV blocks. The other engine has no share to change.
STAND_IN = """
import sys
at = sys.argv.index("--model")
del sys.argv[at : at + 2]
if "--gpu-memory-utilization" in sys.argv:
    at = sys.argv.index("--gpu-memory-utilization")
    share = float(sys.argv[at + 1])
    sys.argv[at : at + 2] = ["--step-ms", "15" if share >= 0.85 else "90"]
    print(f"takes {share}", flush=True)
else:
    sys.argv += ["--step-ms", "50"]
from bench.fake_vllm.__main__ import main
main()
"""
SETTINGS = {
    "classes": {"short": {"max_prompt_tokens": 1024, "ttft_target": 0.005}, "long": {}},
    "utilization": {"windows": ["* * * * *"], "interval": 0.1, "samples": 30},
    "tokenizer": {"channel": "ids"},
    "adapt": {"late": None},
    "burst": {"in_flight": 1000},
}
METRIC = 'forebay_gpu_memory_utilization_ratio{backend="short",kind="%s"} %s'


async def ask_on(running: Up, session: aiohttp.ClientSession, until: asyncio.Event) -> None:
    """One client: the next question when the last answer has come."""
    body = BODY | {"stream": True, "max_tokens": 1}
    while not until.is_set():
        async with session.post(f"{running.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            await answer.read()


@pytest.mark.slow
async def test_a_planned_regression_is_rolled_back(tmp_path: Path, cache_dir: Path) -> None:
    plan, over = tmp_path / "plan.yaml", asyncio.Event()
    write_plan(plan, {"short": free_port(), "long": free_port()})
    document = yaml.safe_load(plan.read_text())
    document["engines"]["short"]["flags"]["gpu-memory-utilization"] = 0.85
    plan.write_text(yaml.safe_dump(document))
    plan.with_name("serve.py").write_text(STAND_IN)
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        up(tmp_path, cache_dir, "--apply", **SETTINGS) as running,
    ):
        await running.ready(session)
        async with asyncio.TaskGroup() as clients:
            for _ in range(4):
                clients.create_task(ask_on(running, session, over))
            await running.until("short: gpu-memory-utilization 0.85 → 0.8: restarting")
            await running.until("takes 0.8\n")
            await running.until("short: gpu-memory-utilization 0.8 → 0.85: restarting")
            await running.until("short: gpu-memory-utilization 0.85 again")
            over.set()
        assert running.output.count("takes 0.85\n") == 2
        assert "at new above" in running.output
        async with session.get(f"{running.url}/metrics") as answer:
            page = await answer.text()
        assert METRIC % ("present", "0.85") in page
        assert 'forebay_tuning_decisions_total{what="rolled_back"} 1' in page
