"""Which backend is likely to hold which prompt prefix in its cache, and which served a session.

Learned from our own dispatches alone, bounded, forgotten with time and with what the engine has
had to store since. What a hit is worth is decided by `placement`, in seconds.
"""

from collections import OrderedDict
from collections.abc import Mapping
from math import inf

from scheduler.model import AffinitySpec, Backend, Ticket


class _Cache:
    """One engine's cache as we imagine it: blocks by their last use, the oldest first.

    `stored` counts the tokens that the engine has had to store so far. A block that was last
    used more than a cache's size of them ago has been evicted, whatever the time.
    """

    __slots__ = ("blocks", "size", "stored")

    def __init__(self) -> None:
        self.blocks: OrderedDict[int, tuple[float, int]] = OrderedDict()
        self.size = inf
        self.stored = 0

    def holds(self, block: int, oldest: float) -> bool:
        used = self.blocks.get(block)
        return used is not None and used[0] >= oldest and self.stored - used[1] <= self.size

    def depth(self, prefix: tuple[int, ...], oldest: float) -> int:
        """How many of the first blocks are held: all before one that is, none after one not."""
        low, high = 0, len(prefix)
        while low < high:
            middle = (low + high) // 2
            if self.holds(prefix[middle], oldest):
                low = middle + 1
            else:
                high = middle
        return low


class PrefixMap:
    """Chained block hashes by backend, and sessions with the backend that last served them."""

    __slots__ = ("_caches", "_sessions", "_spec")

    def __init__(self, spec: AffinitySpec) -> None:
        self._spec = spec
        self._caches: dict[str, _Cache] = {}
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def cached_tokens(self, ticket: Ticket, now: float) -> Mapping[str, int]:
        """For each backend that holds a part of the prompt's beginning, how many tokens of it.

        At least one token of a prompt is always left to compute.
        """
        held: dict[str, int] = {}
        spec, oldest = self._spec, now - self._spec.memory
        if ticket.prefix:
            for name, cache in self._caches.items():
                if cache.holds(ticket.prefix[0], oldest):
                    tokens = cache.depth(ticket.prefix, oldest) * spec.block_tokens
                    held[name] = min(tokens, ticket.prompt_tokens - 1)
        if spec.session and ticket.session:
            name, at = self._sessions.get(ticket.session, ("", oldest - 1.0))
            if at >= oldest:
                held[name] = max(ticket.prompt_tokens - 1, 0)
        return held

    def dispatched(self, ticket: Ticket, backend: Backend, tokens: int, now: float) -> None:
        """The ticket's whole prompt will be in this backend's cache, `tokens` of it anew."""
        spec = self._spec
        if spec.blocks:
            self._remember(ticket, backend, tokens, now)
        if spec.session and ticket.session:
            self._sessions[ticket.session] = (backend.name, now)
            self._sessions.move_to_end(ticket.session)
            if len(self._sessions) > spec.blocks:
                self._sessions.popitem(last=False)

    def _remember(self, ticket: Ticket, backend: Backend, tokens: int, now: float) -> None:
        cache = self._caches.get(backend.name)
        if cache is None:
            cache = self._caches[backend.name] = _Cache()
        cache.size = backend.kv_tokens or inf
        cache.stored += tokens
        blocks, used = cache.blocks, (now, cache.stored)
        # The last block first: a prompt's end is forgotten before its beginning.
        for block in reversed(ticket.prefix):
            blocks[block] = used
            blocks.move_to_end(block)
        while len(blocks) > self._spec.blocks:
            blocks.popitem(last=False)

    def forget(self, backend: str) -> None:
        """The backend's cache is gone: it was removed, or came back from being down."""
        self._caches.pop(backend, None)
        for session in [s for s, (name, _) in self._sessions.items() if name == backend]:
            del self._sessions[session]
