"""Tuning: settings that follow the traffic against settings that stay.

**Boundary.** Four serial engines, 10,000 prompt tokens a second each. Ten minutes of chats (50 to
600 tokens) with a tenth of documents (5,000 to 12,000), then twenty in which most prompts carry
retrieved passages (1,200 to 2,400), then ten of chats again; the boundary is configured at 1,024.
Engines are `split` between the classes, two and two, or `shared` by both. `moved` is told what
comes: its boundary is where it should be in each phase, from its first second on.

**Bursts.** Two A100-class engines, shared; three prompts in ten are documents of 3,000 to 8,000
tokens, with answers of 200: nothing sudden, but each one over the 2,048 tokens of a burst. `off`
halves no limit at all.

**Trace**, where one is given: the first 6,000 of its requests, 16 a second, on four A100-class
engines, split and shared. Goodput is that of `bench.scenarios.trace`.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from bench.engine import SERIAL, EngineSpec
from bench.figures import goodput, in_milliseconds
from bench.policies import NO_BURST, UNBOUNDED
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.scenarios.trace import BOUND, target
from bench.simulation import Outcome, Simulation, ready
from bench.traces import read
from bench.workload import Job, at_rate
from scheduler.events import Arrived, Event, SettingsChanged
from scheduler.model import Backend, BurstSpec, ClassSpec, Settings
from scheduler.tuning import Change, Knob, Scene, Supply, Tuner, TuningSpec, adapted

SEEDS = (1, 2)
RATE = 11.0
INTERVAL = 10.0
PHASES = ((600.0, "chats"), (1800.0, "passages"), (2400.0, "chats"))
"""Until when, and what comes."""
MIXES = {"chats": (0.9, 0.0, 0.1), "passages": (0.35, 0.55, 0.1)}
LENGTHS = ((50, 600), (1200, 2400), (5000, 12_000))
"""Of a chat, a prompt with passages, a document; each as often as the mix says."""
KINDS = ("chat", "passages", "document")
IN_TIME = {True: 0.6, False: 5.0}
"""Seconds within which the first token should come: of prompts up to 2,400 tokens, of others."""
BETWEEN = 2_500
"""A boundary that has the passages in the short class."""

TRACE_RATE, TRACE_REQUESTS = 16.0, 6_000
DOCUMENT_RATE, DOCUMENT_SHARE, DOCUMENT_SECONDS = 8.0, 0.3, 300.0
A100 = engine(A100_80GB, LLAMA_8B)


@dataclass(frozen=True, slots=True)
class Policy:
    """`spec` None: the settings stay, unless `told` has the boundary moved with the `phases`."""

    spec: TuningSpec | None = None
    told: bool = False
    spill: bool = False
    split: bool = True
    burst: BurstSpec = field(default_factory=BurstSpec)
    phases: tuple[tuple[float, str], ...] = PHASES


POLICIES = {
    "split_fixed": Policy(),
    "split_adapting": Policy(TuningSpec()),
    "split_moved": Policy(told=True),
    "split_fixed_spill": Policy(spill=True),
    "split_adapting_spill": Policy(TuningSpec(), spill=True),
    "split_moved_spill": Policy(told=True, spill=True),
    "shared_fixed": Policy(split=False),
    "shared_adapting": Policy(TuningSpec(), split=False),
}
BURSTS = {
    "bursts_fixed": Policy(split=False),
    "bursts_adapting": Policy(TuningSpec(), split=False),
    "bursts_off": Policy(split=False, burst=NO_BURST),
}
TRACES = {
    "trace_split_fixed": Policy(),
    "trace_split_adapting": Policy(TuningSpec()),
    "trace_shared_fixed": Policy(split=False),
    "trace_shared_adapting": Policy(TuningSpec(), split=False),
}

Numbers = dict[str, float | list[str]]


class Adapting(Simulation):
    """A simulation whose settings follow what arrives, as the gateway's do."""

    def __init__(self, policy: Policy, spec: EngineSpec, backends: Sequence[Backend]) -> None:
        self._tuner = Tuner(policy.spec) if policy.spec is not None else None
        self._policy = policy
        self._configured = self._present = settings(policy)
        self._values: dict[Knob, float] = {}
        self._looks_at = INTERVAL
        self._classes = {backend.name: backend.classes for backend in backends}
        self.changes: list[tuple[float, Change]] = []
        super().__init__(self._configured, dict.fromkeys(self._classes, spec), backends)

    def _tell(self, event: Event, now: float) -> None:
        if isinstance(event, Arrived):
            if self._tuner is not None:
                self._tuner.arrived(event.ticket.prompt_tokens, now)
            if now >= self._looks_at:
                self._looks_at = now + INTERVAL
                self._look(now)
        super()._tell(event, now)

    def _look(self, now: float) -> None:
        values = dict(self._values)
        if self._tuner is not None:
            rates = {view.name: view.prefill_rate for view in self.scheduler.snapshot().backends}
            supply = [Supply(rates[name], classes) for name, classes in self._classes.items()]
            scene = Scene(self._configured, self._present, supply)
            changes = self._tuner.look(scene, now)
            self.changes += [(now, change) for change in changes]
            values |= {change.knob: change.after for change in changes}
        elif self._policy.told:
            bound = BETWEEN if phase(now, self._policy) == "passages" else 1024
            values[Knob("class:short", "max_prompt_tokens")] = bound
        if values != self._values:
            self._values, self._present = values, adapted(self._configured, values)
            super()._tell(SettingsChanged(self._present), now)


def phase(now: float, policy: Policy) -> str:
    return next((name for until, name in policy.phases if now < until), policy.phases[-1][1])


def workload(policy: Policy, seed: int) -> list[Job]:
    """Poisson arrivals; each prompt's length is drawn evenly from its kind's range."""
    random, at, jobs = Random(seed), 0.0, []
    while (at := at + random.expovariate(RATE)) < policy.phases[-1][0]:
        low, high = random.choices(LENGTHS, MIXES[phase(at, policy)])[0]
        jobs.append(Job(at, random.randint(low, high)))
    return jobs


def settings(policy: Policy) -> Settings:
    spill = ("short",) if policy.spill else ()
    classes = (
        ClassSpec("short", 1024, queue_limit=UNBOUNDED),
        ClassSpec("long", queue_limit=UNBOUNDED, ttft_target=5.0, spill=spill),
    )
    return Settings(classes=classes, queue_wait=UNBOUNDED, burst=policy.burst)


def documents(seed: int, seconds: float) -> list[Job]:
    """Chats, and documents as a matter of course."""
    random, at, jobs = Random(seed), 0.0, []
    while (at := at + random.expovariate(DOCUMENT_RATE)) < seconds:
        if random.random() < DOCUMENT_SHARE:
            jobs.append(Job(at, random.randint(3_000, 8_000), 200))
        else:
            jobs.append(Job(at, random.randint(*LENGTHS[0]), 100))
    return jobs


def play(policy: Policy, seed: int) -> Adapting:
    """One policy on one seed's shifting traffic, to the end."""
    return _on_four(policy, SERIAL, workload(policy, seed))


def _on_four(policy: Policy, spec: EngineSpec, jobs: Sequence[Job]) -> Adapting:
    wanted = ("short", "short", "long", "long")
    backends = [
        ready(f"{name}-{number}", spec, *([name] if policy.split else []))
        for number, name in enumerate(wanted)
    ]
    simulation = Adapting(policy, spec, backends)
    simulation.run(jobs)
    return simulation


def play_documents(policy: Policy, seed: int, seconds: float = DOCUMENT_SECONDS) -> Adapting:
    """One policy on one seed's documents, to the end."""
    simulation = Adapting(policy, A100, [ready(f"a100-{number}", A100) for number in range(2)])
    simulation.run(documents(seed, seconds))
    return simulation


def run(trace: Path | None) -> Report:
    """Every policy on the same traffic; the numbers of all seeds together."""
    recorded = at_rate(read(trace, TRACE_REQUESTS), TRACE_RATE) if trace is not None else []
    with ProcessPoolExecutor() as pool:
        found = {name: pool.submit(_numbers, policy) for name, policy in POLICIES.items()}
        found |= {name: pool.submit(_bursts, policy) for name, policy in BURSTS.items()}
        if recorded:
            found |= {name: pool.submit(_trace, p, recorded) for name, p in TRACES.items()}
    detail = {name: future.result() for name, future in found.items()}
    summary = {
        f"{name}_{key}": value
        for name, numbers in detail.items()
        for key, value in numbers.items()
        if isinstance(value, float) and not key.endswith("p50_ms")
    }
    return Report(summary, dict(detail))


def _numbers(policy: Policy) -> Numbers:
    played = [play(policy, seed) for seed in SEEDS]
    outcomes = [outcome for each in played for outcome in each.outcomes]
    shifted = [o for o in outcomes if phase(o.job.at, policy) == "passages"]
    numbers: Numbers = {
        "goodput": round(goodput(outcomes, IN_TIME, BETWEEN), 4),
        "shift_goodput": round(goodput(shifted, IN_TIME, BETWEEN), 4),
    }
    for kind, (low, high) in zip(KINDS, LENGTHS, strict=True):
        numbers |= _ttft(kind, [o for o in outcomes if low <= o.job.prompt <= high])
    return numbers | _changes(played)


def _bursts(policy: Policy) -> Numbers:
    played = [play_documents(policy, seed) for seed in SEEDS]
    outcomes = [outcome for each in played for outcome in each.outcomes]
    short = _ttft("chat", [o for o in outcomes if o.job.prompt <= 1024])
    return (
        short | _ttft("document", [o for o in outcomes if o.job.prompt > 1024]) | _changes(played)
    )


def _trace(policy: Policy, jobs: Sequence[Job]) -> Numbers:
    played = _on_four(policy, A100, jobs)
    good = sum(o.ttft is not None and o.ttft <= target(o.job, A100) for o in played.outcomes)
    numbers: Numbers = {"goodput": round(good / len(jobs), 4)}
    numbers |= _ttft("short", [o for o in played.outcomes if o.job.prompt <= BOUND])
    numbers |= _ttft("long", [o for o in played.outcomes if o.job.prompt > BOUND])
    return numbers | _changes([played])


def _ttft(kind: str, outcomes: Sequence[Outcome]) -> Numbers:
    found = in_milliseconds(outcomes)
    return {f"{kind}_{name}_ms": found[name] for name in ("p50", "p99")}


def _changes(played: Sequence[Adapting]) -> Numbers:
    """How many there were in each run, and the first run's, one by one."""
    return {
        "changes": sum(len(each.changes) for each in played) / len(played),
        "story": [_line(at, change) for at, change in played[0].changes],
    }


def _line(at: float, change: Change) -> str:
    name = ".".join(change.knob)
    return f"{at:.0f} s: {name} {change.before:g} → {change.after:g}: {change.why}"
