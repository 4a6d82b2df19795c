"""How an answer came: when its pieces did, and the gaps between them. Pure; time is an argument.

Filled in from within the socket's callback, so it is a few numbers and no list of times. A piece
is what one read brought: one token from vLLM as a rule, several when it or the network was late.
"""

from bisect import bisect_left

ITL_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Seconds. 10 ms is a small model on a fast GPU, 50 ms the slowest that reads as flowing."""

_EVENT_END = b"\n\n"
_TWO_EVENTS = 300
"""Bytes: no two tokens' events are shorter, and a search would cost as much as all the rest."""


class Pace:
    """`gaps` counts the gaps by bucket, the last one those above them all.

    `events` are the server-sent events that came; a `[DONE]` at the end of a token's short piece
    is not among them.
    """

    __slots__ = ("_first_at", "_last_at", "events", "gaps")

    def __init__(self) -> None:
        self.events = 0
        self.gaps = [0.0] * (len(ITL_BUCKETS) + 1)
        self._first_at = self._last_at = 0.0

    def came(self, data: bytes, now: float) -> None:
        """A piece of the answer came."""
        if self._last_at:
            self.gaps[bisect_left(ITL_BUCKETS, now - self._last_at)] += 1.0
        else:
            self._first_at = now
        self._last_at = now
        self.events += 1 if len(data) < _TWO_EVENTS else data.count(_EVENT_END)

    @property
    def waited(self) -> float:
        """Seconds from the first piece to the last: the sum of the gaps."""
        return self._last_at - self._first_at

    @property
    def per_token(self) -> float | None:
        """Mean seconds for each event after the first, which had the first token; None for answers
        too short to tell. The last event, `[DONE]`, is no token."""
        tokens = self.events - 2
        return self.waited / tokens if tokens > 0 else None
