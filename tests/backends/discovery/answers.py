"""Collects what a source finds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from backends.discovery.source import Source
from backends.types import BackendSpec
from tests.backends.scripted import start, until


class Answers:
    """Every answer so far, each a mapping from name to address."""

    def __init__(self) -> None:
        self.specs: list[Sequence[BackendSpec]] = []

    def __call__(self, specs: Sequence[BackendSpec]) -> None:
        self.specs.append(specs)

    @property
    def last(self) -> dict[str, str]:
        return {s.name: s.url.partition("//")[2] for s in self.specs[-1]}

    async def until(self, *names: str) -> None:
        await until(lambda: bool(self.specs) and sorted(self.last) == sorted(names))


@asynccontextmanager
async def following(source: Source) -> AsyncIterator[Answers]:
    answers = Answers()
    task = start(source.follow(answers))
    try:
        yield answers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), f"the source ended by itself: {task}"
