"""What was seen of one group of backends: counts that add up, across gateways and restarts. Pure.

Times are kept in buckets that each are 4% wider than the one before: a quantile is known to 4%,
and a thousand gateways' counts are still added field by field.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor, log

_WIDTH = log(1.04)
_LEAST = 1e-4


def bucket(seconds: float) -> int:
    return floor(log(max(seconds, _LEAST) / _LEAST) / _WIDTH)


def edge(index: int) -> float:
    """Where the bucket begins, in seconds; it ends where the next one begins."""
    return float(_LEAST * (1.04**index))


@dataclass(slots=True)
class Group:
    """One group's answers and failures, and its TTFTs by class and bucket."""

    answers: int = 0
    errors: int = 0
    ttft: dict[str, Counter[int]] = field(default_factory=dict)

    def answered(self, service_class: str, ttft: float | None) -> None:
        self.answers += 1
        if ttft is not None:
            self.ttft.setdefault(service_class, Counter())[bucket(ttft)] += 1

    def failed(self) -> None:
        self.errors += 1

    @property
    def ended(self) -> int:
        return self.answers + self.errors

    def fields(self, name: str) -> dict[str, int]:
        """As the fields of a hash that are added to, those that are not 0."""
        flat = {f"{name}|answers": self.answers, f"{name}|errors": self.errors}
        for service_class, counts in self.ttft.items():
            flat.update({f"{name}|{service_class}|{b}": n for b, n in counts.items()})
        return {key: count for key, count in flat.items() if count}


def group_of(name: str, fields: Mapping[str, str]) -> Group:
    """The group that the fields of a hash tell of; what is not ours there is passed over."""
    group = Group()
    for key, text in fields.items():
        parts = key.split("|")
        if parts[0] != name or not text.isdigit():
            continue
        match parts[1:]:
            case ["answers"]:
                group.answers += int(text)
            case ["errors"]:
                group.errors += int(text)
            case [service_class, index] if index.isdigit():
                group.ttft.setdefault(service_class, Counter())[int(index)] += int(text)
    return group


def merged(groups: Iterable[Group]) -> Group:
    total = Group()
    for group in groups:
        total.answers += group.answers
        total.errors += group.errors
        for service_class, counts in group.ttft.items():
            total.ttft.setdefault(service_class, Counter()).update(counts)
    return total


def ranked(counts: Mapping[int, int], rank: int) -> float:
    """An upper bound of the value with this rank (1 is the least), in seconds."""
    seen = 0
    for index in sorted(counts):
        seen += counts[index]
        if seen >= rank:
            return edge(index + 1)
    raise ValueError(f"there are only {seen} values")


def above(counts: Mapping[int, int], seconds: float) -> int:
    """How many are certainly greater."""
    return sum(count for index, count in counts.items() if edge(index) >= seconds)
