"""Runs the engine model in real time: one timer, one wake-up for all tokens of a step."""

import asyncio
import time
from collections.abc import Callable, Sequence

from bench.engine import Emitted, Engine

Sink = Callable[[int, bool], None]
"""Takes how many more tokens of its sequence came, and whether they were the last."""


class Pump:
    """Feeds sequences to the engine and its tokens to their sinks. Belongs to one event loop.

    The engine's clock is the monotonic one: uvloop's own counts whole milliseconds.
    """

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._sinks: dict[str, Sink] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at: float | None = None

    def submit(
        self,
        seq_id: str,
        prompt_tokens: int,
        output_tokens: int,
        sink: Sink,
        prefix: Sequence[int] = (),
    ) -> None:
        """Raises bench.engine.CannotServe."""
        self._turn()
        self._engine.add(seq_id, prompt_tokens, output_tokens, time.monotonic(), prefix=prefix)
        self._sinks[seq_id] = sink
        self._arm()

    def cancel(self, seq_id: str) -> bool:
        """False when the sequence was not running any more."""
        self._sinks.pop(seq_id, None)
        return self._engine.abort(seq_id)

    def _wake(self) -> None:
        self._timer = None
        self._turn()
        self._arm()

    def _turn(self) -> None:
        for seq_id, (count, finished) in _by_sequence(self._engine.advance(time.monotonic())):
            sink = self._sinks.pop(seq_id, None) if finished else self._sinks.get(seq_id)
            if sink is not None:
                sink(count, finished)

    def _arm(self) -> None:
        at = self._engine.next_event()
        if self._timer is not None:
            if at == self._wakes_at:
                return
            self._timer.cancel()
        self._wakes_at = at
        self._timer = None
        if at is not None:
            self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._wake)


def _by_sequence(emitted: Sequence[Emitted]) -> list[tuple[str, tuple[int, bool]]]:
    """A late wake-up finds several tokens of one sequence: they are delivered together."""
    counts: dict[str, tuple[int, bool]] = {}
    for token in emitted:
        count, _ = counts.get(token.seq_id, (0, False))
        counts[token.seq_id] = (count + 1, token.finished)
    return list(counts.items())
