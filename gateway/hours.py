"""The settings of an hour: what an announced peak takes from limits, and gives to reserves. Pure.

When peak hours are is in `peak`.
"""

from datetime import datetime
from typing import Any

from gateway.config import Config
from gateway.peak import active


def in_force(config: Config, now: datetime) -> Config:
    """The settings as they are at this time: lowered in peak hours, else unchanged."""
    peak = config.peak
    if not active(peak, now):
        return config
    backends = {
        name: backend.model_copy(update={"limit": _less(backend.limit, peak.limit_share)})
        for name, backend in config.backends.items()
    }
    classes: dict[str, Any] = {
        name: spec
        if spec.limit is None
        else spec.model_copy(update={"limit": _less(spec.limit, peak.limit_share)})
        for name, spec in config.classes.items()
    }
    reserve = min(1.0, config.scheduler.kv_reserve + peak.kv_reserve)
    scheduler = config.scheduler.model_copy(update={"kv_reserve": reserve})
    return config.model_copy(
        update={"backends": backends, "classes": classes, "scheduler": scheduler}
    )


def _less(limit: int, share: float) -> int:
    return max(1, int(limit * share))
