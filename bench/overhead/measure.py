"""One measurement: each load to each target in turn, several rounds.

Not here: what runs where (`stand`), the figures made of it (`summary`), the command line.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.overhead.accounts import rss_bytes, tree
from bench.overhead.loads import LOADS, Result
from bench.overhead.stand import Stand, standing

Rounds = dict[str, dict[str, list[Result]]]
"""By target and load, one result a round."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`peers` beside the engine itself; `seconds` for each load, warm-up included."""

    peers: tuple[str, ...]
    rounds: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """`memory`: resident bytes of each process of each gateway after the last round. `by_ids` and
    `by_text`: how the prompts reached the engine in Forebay's turns."""

    rounds: Rounds
    memory: dict[str, list[int]]
    by_ids: int
    by_text: int


async def measure(plan: Plan, folder: Path) -> Found:
    """Raises OverheadFailed, and ChildEnded when a gateway or the engine ends."""
    async with standing(folder) as stand:
        return await _run(plan, stand)


async def _run(plan: Plan, stand: Stand) -> Found:
    targets = [await stand.start_engine()]
    for name in plan.peers:
        targets.append(await stand.start(name))
    rounds: Rounds = {target.name: {load: [] for load in LOADS} for target in targets}
    for _ in range(plan.rounds):
        for name, load in LOADS.items():
            for target in targets:
                rounds[target.name][name].append(await stand.send(target, load, plan.seconds))
    memory = {t.name: [rss_bytes(pid) for pid in tree(t.pid)] for t in targets if t.pid}
    return Found(rounds, memory, **stand.channels)
