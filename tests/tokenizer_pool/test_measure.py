"""The measuring child answers its tasks; what the figures are is for a quiet machine to say."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.tokenizer_pool.bodies import LONG, chat
from tests.tokenizer_pool.conftest import EMBEDDED


def measure(what: str, cache: Path, task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tokenizer_pool.measure", what, str(EMBEDDED), str(cache)]
    ended = subprocess.run(
        command, input=json.dumps(task).encode(), capture_output=True, check=True, timeout=60
    )
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


async def test_both_paths_count_alike_and_take_time(
    cache_dir: Path, embedded_artifact: Path
) -> None:
    bodies = [chat("hello").decode(), chat("Zürich " * 50).decode()]
    task = {"bodies": bodies, "seconds": 0.01}
    ours, theirs = await asyncio.gather(
        *(asyncio.to_thread(measure, w, cache_dir, task) for w in ("ours", "transformers"))
    )
    assert ours["tokens"] == theirs["tokens"]
    assert 0 < ours["cpu_ms"] < theirs["cpu_ms"]


async def test_a_mix_runs_on_one_loop(cache_dir: Path, embedded_artifact: Path) -> None:
    task = {
        "short": [chat("hello").decode()],
        "long": [LONG.decode()],
        "clients": 2,
        "rate": 50,
        "seconds": 0.3,
    }
    figures = await asyncio.to_thread(measure, "mix", cache_dir, task)
    assert figures["short"] >= 10
    assert figures["long_per_second"] > 0
    assert figures["short_ms_p50"] <= figures["short_ms_p99"]
