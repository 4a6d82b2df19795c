"""The analysis itself: a window of the log, and the one before it, put side by side.

What the numbers mean: `ttft` is of streams that began; `stages` are means over the requests that
went through the stage, so that they add up to where the time went; `within_target` is the share
of streams whose TTFT kept the class's target; `failed` are requests that Forebay or a backend
failed (not those that were wrong or whose client left).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.report.lines import Line
from gateway.report.sample import Sample

QUANTILES = (0.5, 0.9, 0.95, 0.99)
WORST = 5
"""How many backends are named as the worst."""
LEAST = 20
"""Streams that a backend must have had for its tail to mean something."""
FAILED = frozenset({"shed", "expired", "unavailable", "backend_failed", "internal"})
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Ttft:
    """Seconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ClassReport:
    """One service class in one window. `hourly` is the p95 of each hour from the window's start."""

    requests: float
    failed: float
    outcomes: Mapping[str, float]
    ttft: Ttft | None
    within_target: float | None
    target: float
    stages: Mapping[str, float]
    hourly: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class BackendReport:
    """One backend in one window; `failed` is a share of its requests."""

    name: str
    streams: float
    failed: float
    ttft: Ttft | None


@dataclass(frozen=True, slots=True)
class Report:
    """`until - since` seconds of log, and as many before them."""

    since: float
    until: float
    classes: Mapping[str, ClassReport]
    before: Mapping[str, ClassReport]
    worst_backends: tuple[BackendReport, ...]


@dataclass(slots=True)
class _Class:
    ttft: Sample = field(default_factory=Sample)
    stages: dict[str, Sample] = field(default_factory=dict)
    hours: dict[int, Sample] = field(default_factory=dict)
    outcomes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class _Backend:
    ttft: Sample = field(default_factory=Sample)
    requests: float = 0.0
    failed: float = 0.0


class Window:
    """Collects the lines of one span of time."""

    def __init__(self, since: float, until: float) -> None:
        self.since = since
        self.until = until
        self.classes: dict[str, _Class] = {}
        self._backends: dict[str, _Backend] = {}

    def add(self, line: Line) -> None:
        """Take a line of the window; others are not its business."""
        if not self.since <= line.time < self.until:
            return
        self._add_to_class(line)
        if line.backend:
            backend = self._backends.setdefault(line.backend, _Backend())
            backend.requests += line.weight
            backend.failed += line.weight * (line.outcome in FAILED)
            if line.ttft is not None:
                backend.ttft.add(line.ttft, line.weight)

    def _add_to_class(self, line: Line) -> None:
        # A request that was refused before it was counted has no class.
        seen = self.classes.setdefault(line.service_class or "none", _Class())
        seen.outcomes[line.outcome] += line.weight
        if line.ttft is None:
            return
        seen.ttft.add(line.ttft, line.weight)
        hour = int((line.time - self.since) // HOUR)
        seen.hours.setdefault(hour, Sample()).add(line.ttft, line.weight)
        for stage, seconds in line.stages.items():
            seen.stages.setdefault(stage, Sample()).add(seconds, line.weight)

    def report(self, targets: Mapping[str, float]) -> dict[str, ClassReport]:
        """By class; a class without a target is measured against the strictest one."""
        strictest = min(targets.values())
        hours = max(1, round((self.until - self.since) / HOUR))
        return {
            name: _class_report(seen, targets.get(name, strictest), hours)
            for name, seen in sorted(self.classes.items())
        }

    def worst_backends(self) -> tuple[BackendReport, ...]:
        """Those that failed most, and among equals those with the longest p95."""
        reports = [
            BackendReport(name, b.ttft.weight, b.failed / b.requests, _ttft(b.ttft))
            for name, b in self._backends.items()
            if len(b.ttft) >= LEAST or b.failed
        ]
        reports.sort(key=lambda b: (-round(b.failed, 3), -(b.ttft.p95 if b.ttft else 0.0), b.name))
        return tuple(reports[:WORST])


@dataclass(frozen=True, slots=True)
class Analysis:
    """Two windows of one log. `now` and `before` keep every TTFT, for whoever draws them."""

    now: Window
    before: Window
    report: Report


def analyse(
    lines: Iterable[Line], *, until: float, span: float, targets: Mapping[str, float]
) -> Analysis:
    """The `span` seconds that end at `until` (wall clock), against the same span before them."""
    now = Window(until - span, until)
    before = Window(until - 2 * span, until - span)
    for line in lines:
        now.add(line)
        before.add(line)
    report = Report(
        since=now.since,
        until=now.until,
        classes=now.report(targets),
        before=before.report(targets),
        worst_backends=now.worst_backends(),
    )
    return Analysis(now, before, report)


def _class_report(seen: _Class, target: float, hours: int) -> ClassReport:
    hourly = (seen.hours.get(hour) for hour in range(hours))
    return ClassReport(
        requests=sum(seen.outcomes.values()),
        failed=sum(n for outcome, n in seen.outcomes.items() if outcome in FAILED),
        outcomes=dict(seen.outcomes),
        ttft=_ttft(seen.ttft),
        within_target=seen.ttft.share_within(target),
        target=target,
        stages={name: sample.mean or 0.0 for name, sample in seen.stages.items()},
        hourly=tuple(None if hour is None else _p95(hour) for hour in hourly),
    )


def _p95(sample: Sample) -> float | None:
    found = sample.quantiles((0.95,))
    return None if found is None else found[0]


def _ttft(sample: Sample) -> Ttft | None:
    quantiles, mean = sample.quantiles(QUANTILES), sample.mean
    return None if quantiles is None or mean is None else Ttft(mean, *quantiles)
