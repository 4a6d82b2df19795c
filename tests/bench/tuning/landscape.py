"""An evaluator whose response is a formula: what a search does, without an engine."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.tuning.objective import Window
from bench.tuning.space import Flags, Space

SPACE = Space(
    {
        "max_num_seqs": (8, 16, 32, 64),
        "max_num_batched_tokens": (1024, 2048, 4096),
        "long_prefill_token_threshold": (0, 256, 512),
        "gpu_memory_utilization": (0.8, 0.9),
    },
    Flags(16, 2048, 0, 0.9),
)


def response(flags: Flags | None) -> float:
    """Milliseconds. Least for 32 sequences, 2,048 tokens and a threshold of 512."""
    if flags is None:
        return 900.0
    return (
        100.0
        + 10.0 * abs(flags.max_num_seqs - 32)
        + abs(flags.max_num_batched_tokens - 2048) / 10
        + abs(flags.long_prefill_token_threshold - 512)
    )


def window(milliseconds: float, **changed: float | str) -> Window:
    told = {"requests": 200, "failed": 0, "good": 100, "seconds": 20.0, **changed}
    return Window(ttfts=(milliseconds / 1e3,) * 100, **told)  # type: ignore[arg-type]


@dataclass
class Landscape:
    """`answer` makes a window of a candidate and a number. `asked` is every one, in order."""

    answer: Callable[[Flags | None, int], Window] = lambda flags, _: window(response(flags))
    asked: list[tuple[Flags | None, int]] = field(default_factory=list)
    open: int = 0

    @asynccontextmanager
    async def started(self, flags: Flags | None) -> AsyncIterator["Spot"]:
        self.open += 1
        try:
            yield Spot(self, flags)
        finally:
            self.open -= 1


@dataclass
class Spot:
    landscape: Landscape
    flags: Flags | None

    async def window(self, number: int, repeat: int = 0) -> Window:
        self.landscape.asked.append((self.flags, number))
        return self.landscape.answer(self.flags, number)
