"""Limits: an engine that is allowed more requests than its KV cache and its batch can serve.

One A100-class engine with a small KV cache, 1,000-token prompts, 400-token answers, and a limit of
256 requests in flight, which is far too high: preemptions, long steps, late first tokens. How
should the limit find the right place: not at all, by halving on triggers and additive recovery
(AIMD, what the scheduler does), or by a gradient on latency (TTFT without load over TTFT now, as
Netflix's concurrency limits do)? The gradient lives here: it moves the backend's limit from
outside, as a control loop beside the gateway would.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt

from bench.figures import in_milliseconds
from bench.policies import NO_BURST, UNBOUNDED
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.simulation import Outcome, Simulation, ready
from bench.workload import Job, Shape, poisson
from scheduler.events import BackendChanged, Event, FirstToken
from scheduler.model import AdaptSpec, ClassSpec, Settings

_SPEC = replace(engine(A100_80GB, LLAMA_8B), kv_tokens=60_000)
_SHAPES = (Shape(1_000, 400, 1.0),)
_SECONDS = 120.0
_TARGET = 0.6
SEEDS = (1,)
RATES = (4.0, 5.0, 7.0)
"""Requests a second; the engine can serve about 4.5."""

RULES = {
    "fixed": AdaptSpec(late=None),
    "aimd_preemptions": AdaptSpec(late=None),
    "aimd": AdaptSpec(),
    "aimd_fast": AdaptSpec(clean_interval=1.0, recovery_step=0.25),
}
"""How a backend's limit moves; without scrapes nobody hears of preemptions, and it is fixed."""


class Gradient:
    """A limit that follows the gradient of TTFT: least TTFT seen over a mean of the last ones."""

    def __init__(self, limit: int) -> None:
        self.limit = float(limit)
        self._most = limit
        self._least = inf
        self._mean = 0.0

    def add(self, ttft: float) -> int:
        """The limit after one more first token."""
        self._least = min(self._least, ttft)
        self._mean += 0.1 * (ttft - self._mean) if self._mean else ttft
        gradient = max(0.5, min(1.0, 1.5 * self._least / self._mean))
        wanted = self.limit * gradient + sqrt(self.limit)
        self.limit = max(1.0, min(float(self._most), self.limit + 0.2 * (wanted - self.limit)))
        return int(self.limit)


class Steered(Simulation):
    """A simulation whose one backend's limit a gradient moves."""

    def __init__(self, settings: Settings) -> None:
        self._gradient = Gradient(_SPEC.max_num_seqs)
        super().__init__(settings, {"engine": _SPEC})

    def _tell(self, event: Event, now: float) -> None:
        super()._tell(event, now)
        if isinstance(event, FirstToken):
            sent = self.outcomes[int(event.ticket_id)].dispatched or 0.0
            limit = self._gradient.add(now - sent)
            self._tell(BackendChanged(replace(ready("engine", _SPEC), limit=limit)), now)


def settings(adapt: AdaptSpec) -> Settings:
    everything = ClassSpec("all", queue_limit=UNBOUNDED, ttft_target=_TARGET)
    return Settings(classes=(everything,), queue_wait=1.5, burst=NO_BURST, adapt=adapt)


def run() -> Report:
    """Each rule at each rate: answers per second that began within 2 s and kept their pace."""
    detail = {
        f"{rate:g}": {name: _numbers(name, rate) for name in (*RULES, "gradient")} for rate in RATES
    }
    summary = {
        f"goodput_{name}_{rate}": numbers["goodput_rps"]
        for rate, row in detail.items()
        for name, numbers in row.items()
    }
    return Report(summary, dict(detail))


def _play(name: str, jobs: Sequence[Job]) -> tuple[list[Outcome], int]:
    if name == "gradient":
        simulation: Simulation = Steered(settings(AdaptSpec(late=None)))
    else:
        simulation = Simulation(settings(RULES[name]), {"engine": _SPEC})
    outcomes = simulation.run(jobs, scrape=name.startswith("aimd"))
    return outcomes, simulation.engines["engine"].preemptions


def _numbers(name: str, rate: float) -> dict[str, float]:
    outcomes, preemptions = [], 0
    for seed in SEEDS:
        played, preempted = _play(name, poisson(_SHAPES, rate, int(rate * _SECONDS), seed))
        outcomes += played
        preemptions += preempted
    good = sum(_good(outcome) for outcome in outcomes)
    rejected = sum(bool(outcome.rejected) for outcome in outcomes)
    return in_milliseconds(outcomes) | {
        "goodput_rps": round(good / _SECONDS / len(SEEDS), 3),
        "rejected": rejected,
        "preemptions": preemptions,
    }


def _good(outcome: Outcome) -> bool:
    """Begun within two seconds of its arrival, and on average 50 ms or less between tokens."""
    if outcome.ttft is None or outcome.ended is None or outcome.first_token is None:
        return False
    pace = (outcome.ended - outcome.first_token) / max(1, outcome.job.output - 1)
    return outcome.ttft <= 2.0 and pace <= 0.05
