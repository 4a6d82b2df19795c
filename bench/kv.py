"""A KV cache as counts of blocks, with vLLM's prefix cache: hashed blocks outlive their owner.

Lives here: which blocks are held, which are idle but still cached, and what is evicted.
Not here: who may run (bench/engine.py) and how block hashes are made (the caller's).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Holding:
    """The blocks of one sequence: `shared` by hash, the rest (`private`) only counted."""

    shared: list[int] = field(default_factory=list)
    private: int = 0

    def __len__(self) -> int:
        return len(self.shared) + self.private


class BlockPool:
    """`blocks` KV blocks. A block is held by a sequence, idle in the cache, or free."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._free = blocks
        self._owners: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def held(self) -> int:
        """Blocks that some sequence holds; a shared block counts once."""
        return self.blocks - self._free - len(self._idle)

    @property
    def available(self) -> int:
        """Blocks that can be had now, by evicting idle cached ones if need be."""
        return self._free + len(self._idle)

    def cached(self, hashes: Sequence[int]) -> int:
        """How many leading blocks of `hashes` are in the cache."""
        for count, block in enumerate(hashes):
            if block not in self._owners and block not in self._idle:
                return count
        return len(hashes)

    def fits(self, hashes: Sequence[int], more: int) -> bool:
        """Whether the cached `hashes` can be held together with `more` fresh blocks."""
        revived = sum(1 for block in hashes if block in self._idle)
        return more <= self.available - revived

    def share(self, holding: Holding, hashes: Sequence[int]) -> None:
        """Let the sequence hold these cached blocks."""
        for block in hashes:
            self._idle.pop(block, None)
            self._owners[block] = self._owners.get(block, 0) + 1
            holding.shared.append(block)

    def take(self, holding: Holding, count: int) -> bool:
        """Give the sequence `count` fresh blocks, all or none."""
        if count > self.available:
            return False
        for _ in range(count - self._free):
            self._idle.popitem(last=False)
            self._free += 1
        self._free -= count
        holding.private += count
        return True

    def publish(self, holding: Holding, hashes: Sequence[int]) -> None:
        """Enter the sequence's freshly computed blocks into the cache.

        A block that another sequence published meanwhile stays a private duplicate, as in vLLM.
        """
        for block in hashes:
            if block not in self._owners and block not in self._idle:
                self._owners[block] = 1
                holding.shared.append(block)
                holding.private -= 1

    def release(self, holding: Holding) -> None:
        """Take everything back. Cached blocks go idle, the end of a prompt to be evicted first."""
        for block in reversed(holding.shared):
            self._owners[block] -= 1
            if not self._owners[block]:
                del self._owners[block]
                self._idle[block] = None
        self._free += holding.private
        holding.shared.clear()
        holding.private = 0

    def check(self, holdings: Sequence[Holding]) -> None:
        """Assert that `holdings` account for exactly the blocks that are held."""
        shared = {block for holding in holdings for block in holding.shared}
        assert shared == self._owners.keys()
        assert sum(holding.private for holding in holdings) + len(shared) == self.held
        assert min([self._free, *(holding.private for holding in holdings)]) >= 0
