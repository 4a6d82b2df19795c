"""One bucket of one tenant, requests or tokens, as one gateway has it. Pure; time is an argument.

Nobody waits for Redis: what may be spent here was handed out before, by the script that all
gateways share, in parts that follow their demand; what is not needed goes back with the next word.
Without Redis the gateway spends its share of the limit: the limit over the gateways last seen.
"""

from dataclasses import dataclass
from math import ceil

from gateway.tenancy.window import SPAN, Window, until

SOON = 0.25
"""Seconds after which a gateway that was short will have been handed more, if there is any."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One word to Redis: spent since the last one, still held, and wanted per second."""

    limit: int
    spent: int
    held: int
    demand: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What more may be spent; what this gateway should hold of what is `left` to all `replicas`;
    when what comes back (told when little is left): seconds and amounts. `memory` names what Redis
    remembers: another one has forgotten what was spent; a `young` one may not know it yet."""

    grant: int
    target: int
    left: int
    replicas: int
    memory: str = ""
    young: bool = False
    returns: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What a client is told: its limit, what is left of it, and in how long all will be back."""

    limit: int
    remaining: int
    reset: float


class Account:
    """`shared` says whether Redis hands out; otherwise the gateway's own window decides."""

    __slots__ = (
        *("_answered_at", "_left", "_memory", "_own", "_rate", "_rated_at", "_returns"),
        *("_sent", "_spent", "_target", "_wanted"),
        *("asked_at", "held", "limit", "replicas", "shared"),
    )

    def __init__(self, limit: int, replicas: int = 1) -> None:
        self.limit = limit
        self.replicas = replicas
        self.shared = False
        self.held = 0
        self.asked_at = -1e9
        self._own = Window()
        self._left = limit
        self._target = 0
        self._returns: list[tuple[float, int]] = []
        self._answered_at = 0.0
        self._memory = ""
        self._spent = self._sent = 0
        self._wanted = 0
        self._rate = 0.0
        self._rated_at = 0.0

    def room(self, amount: int, now: float) -> bool:
        """Whether so much may be spent here and now."""
        if self.shared:
            return self.held >= amount
        self._own.advance(now)
        return self._own.total + amount <= self.limit // self.replicas

    def spend(self, amount: int, now: float) -> None:
        """Negative: what was taken too much goes back. May go into the red."""
        self._own.add(amount, now)
        self.held -= amount
        self._spent += amount
        self._left -= amount
        self._wanted += max(amount, 0)

    def refused(self, amount: int) -> None:
        """It was short here: that is demand, too."""
        self._wanted += amount

    def wait(self, amount: int, now: float) -> float:
        """Seconds until so much could be there."""
        if not self.shared:
            self._own.advance(now)
            share = self.limit // self.replicas
            return until(self._own.total + amount - share, self._own.returns(now))
        if self._left >= amount:
            return SOON
        passed = now - self._answered_at
        back = [(seconds - passed, some) for seconds, some in self._returns]
        return max(SOON, until(amount - max(self._left, 0), back))

    def view(self, now: float) -> View:
        self._own.advance(now)
        left = self._left if self.shared else self.limit // self.replicas - self._own.total
        back = self._own.returns(now)
        return View(self.limit, max(0, min(left, self.limit)), back[-1][0] if back else 0.0)

    @property
    def busy(self) -> bool:
        """Whether there is something to tell Redis soon."""
        return bool(self._spent or self._wanted or self.held > self._target or self._rate >= 1)

    def ask(self, now: float) -> Ask:
        """The next word to Redis. What is held beyond need goes back with it, from this moment."""
        passed = max(now - self._rated_at, 1e-3)
        blend = min(1.0, passed / 0.5)
        self._rate += blend * (self._wanted / passed - self._rate)
        self._rated_at, self._wanted, self.asked_at = now, 0, now
        if self.held > self._target:
            self.held = max(self._target, 0)
        self._sent, self._spent = self._spent, 0
        return Ask(self.limit, self._sent, max(self.held, 0), ceil(self._rate))

    def answered(self, answer: Answer, now: float) -> None:
        if self._memory not in ("", answer.memory):
            self._spent += self._own.total - self._sent
        self._memory = answer.memory
        self._sent = 0
        self.shared = not answer.young
        self.held = self.held + answer.grant if self.shared else 0
        self._target = answer.target
        self._left = answer.left - self._spent
        self.replicas = max(1, answer.replicas)
        self._returns = list(answer.returns)
        self._answered_at = now

    def lost(self) -> None:
        """No answer came: what was said may not have been heard, and Redis hands out no more."""
        self._spent += self._sent
        self._sent = 0
        self.shared = False
        self.held = 0

    def resize(self, limit: int) -> None:
        self._left += limit - self.limit
        self.limit = limit


def duration(seconds: float) -> str:
    """As OpenAI writes how long until a limit is whole again: 1s, 6m0s, 120ms."""
    if seconds < 1:
        return f"{ceil(seconds * 1000)}ms"
    minutes, rest = divmod(ceil(min(seconds, SPAN + 1)), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
