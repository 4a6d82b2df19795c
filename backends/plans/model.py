"""What a plan consists of. Values only."""

from dataclasses import dataclass, field, replace

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of `vllm serve`, without its dashes, and why it has this value. Two with the same
    value are equal, whatever the reasons: an engine is not restarted for a comment."""

    name: str
    value: Value
    reason: str = field(compare=False)

    def arguments(self) -> tuple[str, ...]:
        """As the command line wants it: a switch is only named, or named with `no-`."""
        if isinstance(self.value, bool):
            return (f"--{self.name}" if self.value else f"--no-{self.name}",)
        return f"--{self.name}", str(self.value)


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, and why it has this value."""

    name: str
    value: str
    reason: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Engine:
    """One `vllm serve` process. `gpus` are the devices that it sees (empty: all, or none)."""

    name: str
    model: str
    classes: tuple[str, ...]
    port: int
    gpus: tuple[int, ...] = ()
    flags: tuple[Flag, ...] = ()
    environment: tuple[Variable, ...] = ()

    @property
    def limit(self) -> int:
        """What the gateway should have in flight there: what the engine runs at a time."""
        named = {flag.name: flag.value for flag in self.flags}
        return int(named.get("max-num-seqs", 64))

    def with_flag(self, flag: Flag) -> "Engine":
        """The same engine with this flag, in place of one of its name if there is one."""
        others = tuple(each for each in self.flags if each.name != flag.name)
        return replace(self, flags=(*others, flag))

    def arguments(self) -> tuple[str, ...]:
        """All that follows `vllm serve`, but for where to listen."""
        options = (argument for flag in self.flags for argument in flag.arguments())
        return self.model, *options

    def variables(self) -> dict[str, str]:
        """The environment, with the devices."""
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.gpus))} if self.gpus else {}
        return devices | {variable.name: variable.value for variable in self.environment}


@dataclass(frozen=True, slots=True)
class Plan:
    """The engines of one node. `command` is what starts one: `vllm serve` where that is installed.

    `notes` are for the person who reads the plan.
    """

    engines: tuple[Engine, ...]
    command: tuple[str, ...] = ("vllm", "serve")
    notes: tuple[str, ...] = ()
