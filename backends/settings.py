"""How backends are probed, warmed, watched and retried. Values only; all times in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.breaker import BreakerSettings
from backends.client import ClientLimits
from backends.types import BackendSpec


@dataclass(frozen=True, slots=True)
class WarmSettings:
    """How a backend is made warm before it takes traffic, and kept so.

    A round is `requests` one-token requests in parallel; rounds go on until the median times to
    first token of two rounds on end differ by at most `tolerance` (a share), or `rounds` are over
    or `time_limit` is: what has answered by then is warm enough, and the engine slow.
    `prompt_tokens` gives the lengths that each class's prompts have, at some of its quantiles: the
    requests of a round have them in turn. `default_tokens` is that of a backend of no known class.
    `keep_after` is how long a backend may idle at most before it is sent one more such request, at
    a random moment of its last fifth (None: never).
    """

    requests: int = 10
    rounds: int = 5
    tolerance: float = 0.25
    time_limit: float = 60.0
    prompt_tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    default_tokens: int = 128
    keep_after: float | None = 10.0

    def lengths_for(self, spec: BackendSpec) -> tuple[int, ...]:
        """The prompt lengths to warm this backend with, ascending: those of all its classes."""
        lengths = (self.prompt_tokens.get(name, ()) for name in spec.classes)
        return tuple(sorted(set().union(*lengths))) or (self.default_tokens,)


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How often an engine's metrics are read, every `interval`, and what drift is worth a log line.

    Drift is the difference between the requests that the engine counts and ours. It is told when
    it was over `drift_requests` at each reading for `drift_after`. Another gateway's traffic on
    the same engine looks the same.
    """

    interval: float = 1.0
    drift_requests: int = 8
    drift_after: float = 30.0


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """When a backend is asked for a sign of life, and how it comes back.

    A backend that owes answers, and from which no body byte came for `health_interval`, is asked
    for one token; an idle one is asked by its keep-warm request. `health_strikes` checks on end
    without a good answer within `health_timeout`, and without any other byte, make it DOWN. The
    timeout must be above the longest prefill, behind which the question may have to wait. From
    DOWN it is probed again after `backoff_first`, doubling up to `backoff_max`, times a random
    0.5 to 1; one that stayed up for `backoff_max` starts over at `backoff_first`.

    A backend that gets READY while another can do its work begins with `1 / ramp_steps` of its
    limit and gets the whole in that many steps over `ramp` seconds (0: at once).

    One that is removed must have been without traffic for `linger`: a request may be on its way to
    it, dispatched but not yet sent.
    """

    warm: WarmSettings = WarmSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    client: ClientLimits = field(default_factory=ClientLimits)
    probe_timeout: float = 10.0
    health_interval: float = 10.0
    health_timeout: float = 30.0
    health_strikes: int = 2
    backoff_first: float = 0.5
    backoff_max: float = 5.0
    ramp: float = 10.0
    ramp_steps: int = 4
    linger: float = 0.5
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
