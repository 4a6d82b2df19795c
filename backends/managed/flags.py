"""One flag of a node's engines: what it is now, and restarting one engine with another value."""

from backends.managed.node import Gate, ManagedNode
from backends.plans.model import Flag, Plan


class NodeFlag:
    """The flag `name` on the engines of one node; `gate` keeps requests away from a restart."""

    def __init__(self, node: ManagedNode, gate: Gate, name: str) -> None:
        self._node = node
        self._gate = gate
        self._name = name

    def values(self) -> dict[str, float]:
        """By engine; those that are not given the flag are left out."""
        return {
            name: float(flag.value)
            for name, managed in self._node.engines.items()
            for flag in managed.engine.flags
            if flag.name == self._name
        }

    async def restart(self, engine: str, value: float, why: str) -> None:
        """Restart this engine alone, drained before and warm after. Raises NotBack."""
        present = {name: managed.engine for name, managed in self._node.engines.items()}
        present[engine] = present[engine].with_flag(Flag(self._name, value, why))
        await self._node.roll(self._gate, Plan(tuple(present.values())))
