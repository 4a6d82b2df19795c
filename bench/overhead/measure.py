"""One measurement: each load to each target in turn, several rounds.

Not here: what runs where (`stand`), the figures made of it (`summary`), the command line.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.overhead.accounts import rss_bytes, tree
from bench.overhead.loads import LOADS, UNPACED, Result
from bench.overhead.source import INSTANT, Source
from bench.overhead.stand import Stand, standing

Rounds = dict[str, dict[str, list[Result]]]
"""By target and load, one result a round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`peers` beside the engine itself; `seconds` for each load, warm-up included."""

    peers: tuple[str, ...]
    rounds: int
    seconds: float
    source: Source = INSTANT


@dataclass(frozen=True, slots=True)
class Found:
    """`memory`: resident bytes of each process of each gateway after the last round. `by_ids` and
    `by_text`: how the prompts reached the engine in Forebay's turns, where the engine counts."""

    rounds: Rounds
    memory: dict[str, list[int]]
    by_ids: int | None = None
    by_text: int | None = None


async def measure(plan: Plan, folder: Path) -> Found:
    """Raises OverheadFailed, ChildEnded when a gateway or the engine ends, and what
    `source.start` does."""
    async with standing(folder, plan.source) as stand:
        return await _run(plan, stand)


async def _run(plan: Plan, stand: Stand) -> Found:
    targets = [stand.direct]
    for name in plan.peers:
        targets.append(await stand.start(name))
    loads = LOADS if plan.source.instant else UNPACED
    rounds: Rounds = {target.name: {name: [] for name in loads} for target in targets}
    for _ in range(plan.rounds):
        for name, load in loads.items():
            for target in targets:
                rounds[target.name][name].append(await stand.send(target, load, plan.seconds))
    memory = {t.name: [rss_bytes(pid) for pid in tree(t.pid)] for t in targets if t.pid}
    return Found(rounds, memory, **stand.channels)
