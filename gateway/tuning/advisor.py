"""The rule for shares of GPU memory applied to the backends that there are.

Keeps what was heard of each backend; changes nothing (`carrying` does).
"""

from collections.abc import Callable, Iterable, Mapping

from backends.types import BackendStatus, State
from gateway.canary.sketch import Group
from gateway.config import Config
from gateway.tuning.memory import Advice, Heard, History, Marks, advise

Shares = Callable[[], Mapping[str, float]]
"""What engines take now, by backend."""


class Advisor:
    """`config` is the settings in force, `statuses` the fleet. `managed`, once set, knows the
    shares of engines that are ours better than their metrics do."""

    def __init__(
        self, config: Callable[[], Config], statuses: Callable[[], Iterable[BackendStatus]]
    ) -> None:
        self._config = config
        self._statuses = statuses
        self._history = History()
        self.managed: Shares | None = None

    def heard(self, heard: Heard) -> None:
        spec = self._config().classes.get(heard.service_class)
        if heard.ttft is not None and spec is not None:
            kept = self._config().utilization.samples
            self._history.add(heard, heard.ttft / spec.ttft_target, kept)

    def status_changed(self, status: BackendStatus) -> None:
        """A backend that leaves the traffic starts anew."""
        if status.state is not State.READY:
            self._history.forget(status.spec.name)

    def shares(self) -> dict[str, float]:
        """What each backend takes, where it is known."""
        found = {
            status.spec.name: status.capabilities.memory_utilization
            for status in self._statuses()
            if status.capabilities is not None
        }
        known = {name: share for name, share in found.items() if share is not None}
        return known | dict(self.managed() if self.managed is not None else {})

    def advices(self) -> list[Advice]:
        """For each backend whose share is known, what it should be."""
        spec = self._config().utilization
        marks = Marks(spec.high, spec.low)
        shares = self.shares()
        self._history.keep({status.spec.name for status in self._statuses()})
        return [
            advise(name, share, self._history.ratios(name), marks) for name, share in shares.items()
        ]

    def spared(self, backend: str) -> bool:
        """Whether another ready backend serves the same models: nobody takes the last one away."""
        ready = [each for each in self._statuses() if each.state is State.READY]
        models = {each.spec.name: _models(each) for each in ready}
        own = models.pop(backend, frozenset())
        return bool(own) and own <= frozenset().union(*models.values())

    def group(self, backend: str) -> Group:
        """What was last seen of a backend."""
        return self._history.group(backend)


def _models(status: BackendStatus) -> frozenset[str]:
    found = status.capabilities
    return frozenset(model.name for model in found.models) if found else frozenset()
