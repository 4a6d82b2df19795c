"""What is searched: four of vLLM's flags, the values that each may take, and which go together.

The values lie around those that the plan's rules give (`backends.plans.rules`), which are the
search's beginning. Pure. Not here: in which order they are tried (`ladder`, `search`).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from backends.plans.model import Flag

NAMES = {
    "max_num_seqs": "max-num-seqs",
    "max_num_batched_tokens": "max-num-batched-tokens",
    "long_prefill_token_threshold": "long-prefill-token-threshold",
    "gpu_memory_utilization": "gpu-memory-utilization",
}
"""The axes, in their order, by their names on the command line."""

_SEQS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)
"""Of what the rules say."""
_BATCHED = (512, 1024, 2048, 4096, 8192)
_THRESHOLD = (256, 512, 1024, 2048)
_NONE = 0
"""As a threshold: none. It stands at the end of its axis, because it lets the most through."""
_UTILIZATION = (0.70, 0.80, 0.90)
"""The source's least and its most, and the middle."""


@dataclass(frozen=True, slots=True)
class Flags:
    """One candidate. A threshold of 0 is none; a utilisation of None is not given: on a CPU the
    flag has no meaning (there the KV cache is what VLLM_CPU_KVCACHE_SPACE says)."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0
    gpu_memory_utilization: float | None = None

    def values(self) -> dict[str, int | float]:
        """By the names of the command line; what is not given is left out."""
        given: dict[str, int | float | None] = asdict(self)
        return {NAMES[axis]: value for axis, value in given.items() if value is not None}

    def __str__(self) -> str:
        return " ".join(f"--{name} {value}" for name, value in self.values().items())


@dataclass(frozen=True)
class Space:
    """The values of each axis in their order, and where the search begins: values of theirs."""

    axes: Mapping[str, tuple[Any, ...]]
    start: Flags

    def only(self, names: Sequence[str]) -> "Space":
        """The space of these flags alone, tried in this order; the others stay as at the start.
        Raises ValueError."""
        named = {name: axis for axis, name in NAMES.items()}
        if unknown := set(names) - named.keys():
            raise ValueError(f"no such flag: {', '.join(sorted(unknown))}; {', '.join(named)}")
        wanted = {named[name]: self.axes[named[name]] for name in names}
        fixed = {axis: (getattr(self.start, axis),) for axis in self.axes if axis not in wanted}
        return replace(self, axes=wanted | fixed)

    @cached_property
    def candidates(self) -> tuple[Flags, ...]:
        """All that make sense, each once: what the exhaustive search measures."""
        every = (self.at(dict(zip(self.axes, place, strict=True))) for place in self._places())
        return tuple(dict.fromkeys(flags for flags in every if flags is not None))

    def at(self, place: Mapping[str, int]) -> Flags | None:
        """The candidate at these positions on the axes; None where its flags exclude each other.

        vLLM refuses a step with fewer tokens than sequences. A threshold that no chunk exceeds is
        none, so these are one candidate and not several.
        """
        flags = Flags(**{axis: values[place[axis]] for axis, values in self.axes.items()})
        if flags.max_num_batched_tokens < flags.max_num_seqs:
            return None
        if flags.long_prefill_token_threshold >= flags.max_num_batched_tokens:
            return replace(flags, long_prefill_token_threshold=_NONE)
        return flags

    def place(self, flags: Flags) -> dict[str, int]:
        """Its position on each axis."""
        return {axis: values.index(getattr(flags, axis)) for axis, values in self.axes.items()}

    def distance(self, flags: Flags, place: Mapping[str, int]) -> int:
        """Steps along the axes from one to the other."""
        mine = self.place(flags)
        return sum(abs(mine[axis] - place[axis]) for axis in self.axes)

    def nearest(self, place: Mapping[str, int], but: Container[Flags]) -> Flags | None:
        """The candidate nearest to a place, but none of these; of equally near ones the first."""
        left = [candidate for candidate in self.candidates if candidate not in but]
        return min(left, key=lambda one: self.distance(one, place), default=None)

    def rungs(self, flags: Flags, axis: str) -> list[Flags]:
        """This candidate and all that differ from it in one flag, in the order of the axis."""
        place = self.place(flags)
        every = (self.at(place | {axis: at}) for at in range(len(self.axes[axis])))
        return list(dict.fromkeys(rung for rung in every if rung is not None))

    def _places(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(len(values)) for values in self.axes.values()))


def around(rules: Sequence[Flag], *, longest: int | None = None) -> Space:
    """The space around the flags of a plan. What the plan doesn't say is as vLLM has it by default.

    `longest` is the context's length: vLLM refuses a threshold over it. A plan without a
    utilisation, as for a CPU, has no such axis to search.
    """
    named = {flag.name: flag.value for flag in rules}
    threshold = int(named.get(NAMES["long_prefill_token_threshold"], 0))
    utilization = named.get(NAMES["gpu_memory_utilization"])
    start = Flags(
        max_num_seqs=int(named.get(NAMES["max_num_seqs"], 256)),
        max_num_batched_tokens=int(named.get(NAMES["max_num_batched_tokens"], 2048)),
        long_prefill_token_threshold=threshold,
        gpu_memory_utilization=None if utilization is None else float(utilization),
    )
    known = [tokens for tokens in _THRESHOLD if longest is None or tokens <= longest]
    axes: dict[str, tuple[Any, ...]] = {
        "max_num_seqs": _with(
            start.max_num_seqs, (max(1, round(s * start.max_num_seqs)) for s in _SEQS)
        ),
        "max_num_batched_tokens": _with(start.max_num_batched_tokens, _BATCHED),
        "long_prefill_token_threshold": (*_with(threshold or known[0], known), _NONE),
        "gpu_memory_utilization": (None,),
    }
    if start.gpu_memory_utilization is not None:
        given = start.gpu_memory_utilization
        axes["gpu_memory_utilization"] = _with(given, _UTILIZATION)
    return Space(axes, start)


def _with(value: Any, others: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted({value, *others}))
