"""The backends as the scheduler knows them.

Which backends a lane may use is answered here from states, models, classes and weights.
What each has in flight is in `ledger`; whether one has room now, and which is best, is not here.
"""

from collections.abc import Iterator

from scheduler.ledger import Member
from scheduler.model import AdaptSpec, Backend, BackendState, ClassSpec


class Fleet:
    """All backends by name, and the pools they form."""

    __slots__ = ("_alive", "_candidates", "_lenders", "_members", "vacant")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.vacant = 0
        """Backends with a free slot, of whatever class, model and state."""
        self._alive: dict[str, bool] = {}
        self._lenders: dict[tuple[str, str, frozenset[str]], tuple[Member, ...]] = {}
        self._candidates: dict[tuple[str, str, frozenset[str]], tuple[Member, ...]] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def put(self, backend: Backend, limits: AdaptSpec) -> None:
        """Add or replace a backend; what it has in flight stays in its ledger."""
        member = self._members.get(backend.name)
        if member is None:
            member = self._members[backend.name] = Member(backend, limits)
        member.update(backend, limits)
        self._changed()
        self.recount()

    def remove(self, name: str) -> Member | None:
        """Forget a backend, at once or when its last stream has ended."""
        member = self._members.get(name)
        if member is not None:
            member.removed = True
            self.release(member)
            self._changed()
        return member

    def release(self, member: Member) -> None:
        """Forget a removed backend if nothing is in flight there any more."""
        if member.removed and not member.flights:
            self._members.pop(member.backend.name, None)
            self.recount()

    def recount(self) -> None:
        """Count the vacant backends after a limit, or a backend, has changed."""
        for member in self:
            member.vacant = member.has_room()
        self.vacant = sum(member.vacant for member in self)

    def filled(self, member: Member) -> None:
        """A backend's last free slot was taken."""
        member.vacant = False
        self.vacant -= 1

    def emptied(self, member: Member) -> None:
        """A backend that was full has a free slot."""
        member.vacant = True
        self.vacant += 1

    def known(self, model: str) -> bool:
        """Whether any backend, in whatever state, serves the model or has yet to say so."""
        return any(
            not m.removed and (not m.backend.models or model in m.backend.models) for m in self
        )

    def alive(self, model: str) -> bool:
        """Whether waiting makes sense: a backend of the model is ready or becoming ready."""
        found = self._alive.get(model)
        if found is None:
            found = any(not m.removed and _may_serve(m.backend, model) for m in self)
            if found:
                # Models that nobody serves are the clients' inventions, without end.
                self._alive[model] = True
        return found

    def pool(self, service_class: str) -> list[Member]:
        """The ready backends of a class, whatever their models; all ready ones if none is."""
        ready = [m for m in self if _takes(m)]
        return [m for m in ready if _serves(m, service_class)] or ready

    def candidates(
        self, service_class: str, model: str, avoid: frozenset[str]
    ) -> tuple[Member, ...]:
        """The backends that a lane may use now, busy or not.

        Preference: those of the class; without any, every ready one of the model. Backends to
        avoid are left out as long as one other remains.
        """
        key = (service_class, model, avoid)
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = self._find(service_class, model, avoid)
        return found

    def lenders(self, spec: ClassSpec, model: str, avoid: frozenset[str]) -> tuple[Member, ...]:
        """The backends that are not of the class, but of one that it may spill over to."""
        key = (spec.name, model, avoid)
        found = self._lenders.get(key)
        if found is None:
            found = self._lenders[key] = tuple(
                m
                for m in self.lending(spec)
                if model in m.backend.models and m.backend.name not in avoid
            )
        return found

    def lending(self, spec: ClassSpec) -> list[Member]:
        """The same, whatever their models."""
        others = spec.spill
        return [
            m
            for m in self
            if _takes(m) and m.lends_to(spec.name) and not m.backend.classes.isdisjoint(others)
        ]

    def _changed(self) -> None:
        self._alive.clear()
        self._lenders.clear()
        self._candidates.clear()

    def _find(self, service_class: str, model: str, avoid: frozenset[str]) -> tuple[Member, ...]:
        ready = [m for m in self if _takes(m) and model in m.backend.models]
        fresh = [m for m in ready if m.backend.name not in avoid] or ready
        return tuple([m for m in fresh if _serves(m, service_class)] or fresh)


def _may_serve(backend: Backend, model: str) -> bool:
    if backend.state is BackendState.WARMING:
        return model in backend.models or not backend.models
    return backend.state is BackendState.READY and model in backend.models


def _takes(member: Member) -> bool:
    backend = member.backend
    return not member.removed and backend.state is BackendState.READY and backend.weight > 0


def _serves(member: Member, service_class: str) -> bool:
    return not member.backend.classes or service_class in member.backend.classes
