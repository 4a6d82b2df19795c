"""Conversations that grow turn by turn, all after one system prompt. Pure.

A turn's prompt is all that was said before and something new, in blocks of `BLOCK` tokens. A
block's number tells what it holds, so two prompts share what their lists have in common.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from bench.traces import MOONCAKE_BLOCK
from bench.workload import Job

BLOCK = MOONCAKE_BLOCK


@dataclass(frozen=True, slots=True)
class Talk:
    """`open` conversations at a time, each of `turns` turns and then followed by a new one; lengths
    in blocks; `rate` in requests per second. `first` keeps runs from sharing text."""

    rate: float
    seconds: float
    open: int = 20
    turns: int = 10
    system: int = 2
    said: int = 1
    answer: int = 16
    first: int = 0


def jobs(talk: Talk, seed: int) -> list[Job]:
    """Poisson; each is the next turn of some conversation."""
    return list(_endless(talk, Random(seed)))


def _endless(talk: Talk, random: Random) -> Iterator[Job]:
    numbers = count(talk.first)
    system = [next(numbers) for _ in range(talk.system)]
    conversations: list[list[int]] = [[] for _ in range(talk.open)]
    at = random.expovariate(talk.rate)
    while at < talk.seconds:
        place = random.randrange(talk.open)
        if len(conversations[place]) >= talk.turns * talk.said:
            conversations[place] = []
        conversations[place] = [
            *conversations[place], *(next(numbers) for _ in range(talk.said))
        ]  # fmt: skip
        blocks = (*system, *conversations[place])
        yield Job(at, len(blocks) * BLOCK, talk.answer, session=str(place), prefix=blocks)
        at += random.expovariate(talk.rate)


def shareable(planned: Sequence[Job]) -> float:
    """The share of all prompt tokens that came before: what one endless cache would spare."""
    known: set[int] = set()
    spared = total = 0
    for job in planned:
        spared += sum(block in known for block in job.prefix)
        total += len(job.prefix)
        known.update(job.prefix)
    return spared / total if total else 0.0
