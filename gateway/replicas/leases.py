"""What one gateway holds of the slots that it shares with others. Pure; time is an argument.

A lease has a capacity (of all gateways together) and a limit (this gateway's part). The limit may
be lowered by whoever decides, at once; what is above it ends by itself. Redis counts what was held
until this gateway has said that it holds less: so the parts never add up to more than there is.
"""

from dataclasses import dataclass, field

MEMORY = 1.0
"""Seconds for which the largest demand counts: a gap between two bursts gives nothing away."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One renewal, as the script wants it."""

    capacity: int
    limit: int
    used: int
    demand: int


@dataclass(slots=True)
class Lease:
    """`limit` None: this gateway has no part yet, and may use nothing."""

    capacity: int
    limit: int | None = None
    replicas: int = 1
    """How many gateways shared it when Redis last answered."""
    asked_at: float = -1e9
    used: int = 0
    _demands: list[tuple[float, int]] = field(default_factory=list)

    @property
    def may_use(self) -> int:
        return 0 if self.limit is None else min(self.limit, self.capacity)

    def note(self, used: int, wanted: int, now: float) -> None:
        """What is in use now, and what would be if there were room."""
        self.used = used
        demands = self._demands
        while demands and (demands[0][0] <= now - MEMORY):
            demands.pop(0)
        while demands and demands[-1][1] <= wanted:
            demands.pop()
        demands.append((now, wanted))

    @property
    def demand(self) -> int:
        return self._demands[0][1] if self._demands else 0

    def ask(self, now: float) -> Ask:
        self.asked_at = now
        return Ask(self.capacity, self.may_use, self.used, min(self.demand, self.capacity))

    def answered(self, grant: int, replicas: int, *, young: bool = False) -> bool:
        """Redis has decided; says whether the limit is another one now. A `young` Redis does not
        know all yet: it has nothing to give to who has nothing."""
        before, self.replicas = self.may_use, max(1, replicas)
        if not (young and self.limit is None):
            self.limit = grant
        return self.may_use != before

    def alone(self, expected: int) -> bool:
        """Redis never answered: take the part that the operator expects to be ours."""
        if self.limit is not None:
            return False
        self.replicas = expected
        self.limit = max(1, self.capacity // expected)
        return True

    def resize(self, capacity: int) -> bool:
        """Another capacity was configured: in proportion until Redis has decided."""
        if capacity == self.capacity:
            return False
        before, old = self.may_use, self.capacity
        self.capacity = capacity
        if self.limit is not None:
            self.limit = min(self.limit, max(1, self.limit * capacity // old))
        return self.may_use != before
