"""`python -m tokenizer_pool.measure WHAT DIR CACHE`: what preprocessing costs here.

A child for benchmarks: one JSON task a line on stdin, one JSON answer a line on stdout, until
stdin ends. `ours` (and `ours-cached`) prepares requests in place, as a worker does; `transformers`
does what vLLM's default renderer does for the same requests; `mix` runs a whole pool on a loop
under traffic. What is asked and how answers are compared is the benchmark's business.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
import uvloop

from tokenizer_pool import requests
from tokenizer_pool.artifact import load_model
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.source import artifact_path
from tokenizer_pool.types import Kind, PoolSettings, TokenizerSource, Wanted
from tokenizer_pool.worker import settle_memory

_MODEL: Final = "m"
_EXTRACT_LIMIT: Final = 300.0
_CACHE_BYTES: Final = 64 * 1024 * 1024
_TICK: Final = 0.001
# As the gateway asks where ids are proved for every backend of a model.
_WANTED: Final = Wanted(text=False, usage=True)

Prepare = Callable[[bytes], int]


def ours(directory: Path, cache: Path, *, cache_bytes: int) -> Prepare:
    """Our whole path for one body: from bytes to upstream bytes; returns the token count."""
    source = TokenizerSource(_MODEL, directory)
    path = asyncio.run(artifact_path(source, cache, limit=_EXTRACT_LIMIT))
    model = load_model(_MODEL, path, on_loop=False, cache_bytes=cache_bytes)
    settle_memory()

    def prepare(body: bytes) -> int:
        document = requests.parse(body, Kind.CHAT)
        return model.prepare(Kind.CHAT, document, _WANTED).prompt_tokens

    return prepare


def transformers(directory: Path) -> Prepare:
    """JSON, `apply_chat_template` and the fast tokenizer's call, as vLLM runs them by default."""
    import json

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)

    def prepare(body: bytes) -> int:
        document = json.loads(body)
        prompt = tokenizer.apply_chat_template(
            document["messages"],
            tools=document.get("tools"),
            add_generation_prompt=True,
            tokenize=False,
        )
        return len(tokenizer(prompt, add_special_tokens=False)["input_ids"])

    return prepare


def cpu(prepare: Prepare, bodies: list[bytes], seconds: float) -> dict[str, Any]:
    """Median CPU time of one body in ms, over rounds for about `seconds`, and the counts."""
    tokens = [prepare(body) for body in bodies]
    rounds: list[float] = []
    until = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < until:
        started = time.process_time_ns()
        for body in bodies:
            prepare(body)
        rounds.append((time.process_time_ns() - started) / len(bodies) / 1e6)
    return {"cpu_ms": median(rounds), "tokens": tokens, "rounds": len(rounds)}


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Mix:
    """Long chats back to back from some clients, short ones at a steady rate, one loop."""

    def __init__(self, pool: TokenizerPool, task: dict[str, Any]) -> None:
        self._pool = pool
        self._short = [body.encode() for body in task["short"]]
        self._long = [body.encode() for body in task["long"]]
        self._rate = float(task["rate"])
        self._clients = int(task["clients"])
        self._seconds = float(task["seconds"])
        self._stalls: list[float] = []
        self._latencies: list[float] = []
        self._longs = 0

    async def run(self) -> dict[str, Any]:
        """Figures of the mix; times in milliseconds."""
        until = time.perf_counter() + self._seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick(until))
            group.create_task(self._steady(until, group))
            for client in range(self._clients):
                group.create_task(self._back_to_back(until, client))
        return {
            "loop_stall_ms_p99": _percentile(self._stalls, 0.99),
            "loop_stall_ms_max": max(self._stalls),
            "short_ms_p50": _percentile(self._latencies, 0.5),
            "short_ms_p99": _percentile(self._latencies, 0.99),
            "short": len(self._latencies),
            "long_per_second": self._longs / self._seconds,
        }

    async def _tick(self, until: float) -> None:
        """How much later than asked the loop comes back."""
        now = time.perf_counter()
        while now < until:
            await asyncio.sleep(_TICK)
            later = time.perf_counter()
            self._stalls.append(max(0.0, later - now - _TICK) * 1e3)
            now = later

    async def _back_to_back(self, until: float, client: int) -> None:
        number = client
        while time.perf_counter() < until:
            await self._pool.prepare(
                Kind.CHAT, self._long[number % len(self._long)], wanted=_WANTED
            )
            number += self._clients
            self._longs += 1

    async def _steady(self, until: float, group: asyncio.TaskGroup) -> None:
        due = time.perf_counter()
        number = 0
        while due < until:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(self._one(self._short[number % len(self._short)], due))
            number += 1
            due += 1 / self._rate

    async def _one(self, body: bytes, due: float) -> None:
        await self._pool.prepare(Kind.CHAT, body, wanted=_WANTED)
        self._latencies.append((time.perf_counter() - due) * 1e3)


async def _mix(directory: Path, cache: Path) -> None:
    start = asyncio.get_running_loop().create_task
    pool = TokenizerPool(
        # No segment is known from before: the figures are those of new text.
        PoolSettings(cache_dir=cache, segment_cache_bytes=0),
        lambda name, coroutine: start(coroutine, name=name),
    )
    await pool.start()
    try:
        await pool.add_model(TokenizerSource(_MODEL, directory))
        for task in _tasks():
            _answer(await Mix(pool, task).run())
    finally:
        await pool.stop()


def _tasks() -> Iterator[dict[str, Any]]:
    for line in sys.stdin.buffer:
        yield orjson.loads(line)


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """The command line: what to run, the tokenizer's directory, and a cache directory."""
    what, directory, cache = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "mix":
        uvloop.run(_mix(directory, cache))
        return
    if what == "transformers":
        prepare = transformers(directory)
    else:
        cached = what == "ours-cached"
        prepare = ours(directory, cache, cache_bytes=_CACHE_BYTES if cached else 0)
    for task in _tasks():
        bodies = [body.encode() for body in task["bodies"]]
        _answer(cpu(prepare, bodies, float(task["seconds"])))


if __name__ == "__main__":
    main()
