"""Which backend is likely to hold which prompt prefix in its cache, and which served a session.

Learned from our own dispatches alone, bounded, forgotten with time. What a hit is worth is
decided by `placement`, in seconds.
"""

from collections import OrderedDict

from scheduler.model import AffinitySpec, Ticket


class PrefixMap:
    """Chained block hashes and sessions, each with the backends that last served them."""

    __slots__ = ("_holders", "_sessions", "_spec")

    def __init__(self, spec: AffinitySpec) -> None:
        self._spec = spec
        self._holders: OrderedDict[int, dict[str, float]] = OrderedDict()
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def cached_tokens(self, ticket: Ticket, now: float) -> dict[str, int]:
        """For each backend that holds a part of the prompt's beginning, how many tokens of it.

        At least one token of a prompt is always left to compute.
        """
        held: dict[str, int] = {}
        spec, oldest = self._spec, now - self._spec.memory
        for index, block in enumerate(ticket.prefix, 1):
            # A hash chains its parent in: who holds this block held all before it.
            fresh = [n for n, at in self._holders.get(block, {}).items() if at >= oldest]
            if not fresh:
                break
            for name in fresh:
                held[name] = min(index * spec.block_tokens, ticket.prompt_tokens - 1)
        if spec.session and ticket.session:
            name, at = self._sessions.get(ticket.session, ("", oldest - 1.0))
            if at >= oldest:
                held[name] = max(ticket.prompt_tokens - 1, 0)
        return held

    def dispatched(self, ticket: Ticket, backend: str, now: float) -> None:
        """The ticket's whole prompt will be in this backend's cache."""
        spec, holders = self._spec, self._holders
        for block in ticket.prefix[: spec.blocks]:
            holders.setdefault(block, {})[backend] = now
            holders.move_to_end(block)
        while len(holders) > spec.blocks:
            holders.popitem(last=False)
        if spec.session and ticket.session:
            self._sessions[ticket.session] = (backend, now)
            self._sessions.move_to_end(ticket.session)
            if len(self._sessions) > spec.blocks:
                self._sessions.popitem(last=False)

    def forget(self, backend: str) -> None:
        """The backend's cache is gone: it was removed, or came back from being down."""
        for holders in self._holders.values():
            holders.pop(backend, None)
        for session in [s for s, (name, _) in self._sessions.items() if name == backend]:
            del self._sessions[session]
