"""Simulated scenarios, one file each: a claim, its baselines beside it, and the numbers."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """What a scenario found. `summary` is flat numbers, `detail` whatever explains them."""

    summary: dict[str, float]
    detail: dict[str, Any] = field(default_factory=dict)
