"""What is asked of a server to learn its costs: lone prompts, answers decoded together, a mix.

Each prompt is new, so the prefix cache spares nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from rich.console import Console

from backends.types import Timeouts
from bench.calibrate.fit import Decode, Fitted, Prefill
from bench.load.discover import LoadFailed
from bench.load.plan import Lengths
from bench.load.sample import Sample
from bench.load.session import Settings, run_load
from bench.workload import Job

DECODED = 32
"""Tokens of an answer whose gaps are measured."""

HELD_OUT_LOAD = 0.4
"""Of what the fitted model says that the engine can prefill."""

_TIMEOUTS = Timeouts(connect=10.0, first_token=120.0, token_gap=120.0, total=300.0)


@dataclass(frozen=True, slots=True)
class Server:
    """Which server, and the sizes that it is asked: prompts in tokens, answers at once."""

    url: str
    model: str | None = None
    tokenizer: Path | None = None
    prompts: tuple[int, ...] = (50, 200, 500, 1000, 2000, 4000)
    running: tuple[int, ...] = (1, 2, 4, 8)
    repeats: int = 3


async def prefills(server: Server) -> list[Prefill]:
    """One request at a time; of each size the median. The first of all warms the server."""
    warm_up = [Job(0.0, server.prompts[0], 2)] * 3
    await _ask(server, warm_up, concurrency=1, seed=0)
    jobs = [Job(0.0, tokens, 1) for tokens in server.prompts for _ in range(server.repeats)]
    by_size: dict[int, list[float]] = {}
    for sample in await _ask(server, jobs, concurrency=1, seed=1):
        if sample.ttft is not None:
            by_size.setdefault(sample.prompt_tokens, []).append(sample.ttft)
    return [Prefill(tokens, median(values)) for tokens, values in by_size.items()]


async def decodes(server: Server) -> list[Decode]:
    """Short prompts with long answers, so many at once: what each token after the first adds.

    By whole answers beside answers of one token: a busy server writes several tokens at once, and
    vLLM sometimes all of an answer.
    """
    found = []
    for running in server.running:
        took: dict[int, list[float]] = {1: [], DECODED: []}
        for repeat in range(server.repeats):
            for tokens, times in took.items():
                jobs = [Job(0.0, 64, tokens)] * running
                seed = 100 * tokens + repeat
                answers = await _ask(server, jobs, concurrency=running, seed=seed)
                times += [sample.ended - sample.sent for sample in answers]
        gap = (median(took[DECODED]) - median(took[1])) / (DECODED - 1)
        if gap <= 0.0:
            raise LoadFailed(f"answers of {DECODED} tokens took no longer than answers of one")
        found.append(Decode(running, 64 + DECODED / 2, gap))
    return found


async def held_out(server: Server, fitted: Fitted, count: int) -> list[Sample]:
    """Prompts and answers of other sizes, in an open loop."""
    random = Random(7)
    low, high = server.prompts[0], server.prompts[-1]
    sizes = [round(low * (high / low) ** random.random()) for _ in range(count)]
    spec = fitted.spec
    work = sum(
        size * spec.prefill_per_token + size * size / 2 * spec.attention + spec.step_base
        for size in sizes
    )
    gap = work / count / HELD_OUT_LOAD
    at, jobs = 0.0, []
    for size in sizes:
        at += random.expovariate(1 / gap)
        jobs.append(Job(at, size, random.randint(1, 24)))
    return await _ask(server, jobs, concurrency=None, seed=20)


async def _ask(
    server: Server, jobs: Sequence[Job], *, concurrency: int | None, seed: int
) -> list[Sample]:
    """Raises LoadFailed when one of them gets no answer: no model is fitted to errors."""
    settings = Settings(
        url=server.url,
        timeouts=_TIMEOUTS,
        lengths=Lengths(),
        model=server.model,
        tokenizer=server.tokenizer,
        concurrency=concurrency,
        seed=seed,
    )
    outcome = await run_load(settings, jobs, Console(quiet=True))
    if failed := [sample.error for sample in outcome.samples if sample.error]:
        raise LoadFailed(f"{len(failed)} of {len(jobs)} requests failed: {failed[0]}")
    return sorted(outcome.samples, key=lambda sample: sample.number)
