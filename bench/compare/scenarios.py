"""What is sent: jobs by seed, and which engines they are for. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.workload import HEAD_OF_LINE, Job, Shape, mean_prompt, merge, poisson

ENGINES = 2
PREFILL = {"serial": 1e-4, "a100-llama-8b": 9.4e-5}
"""Seconds for a prompt token, by the preset of bench/fake_vllm: loads are shares of it."""

_STEADY = (Shape(200, 40, 1.0),)
_STEADY_RATE = 8.0
_WAVE = 16
_WAVE_SECONDS = 2.0
_CHAT = (Shape(150, 64, 0.5), Shape(600, 64, 0.35), Shape(1800, 64, 0.15))
_CHAT_LOAD = 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a run is, how many engines there are, and what one prompt token costs them."""

    seconds: float
    engines: int = ENGINES
    prefill: float | None = None

    def rate(self, load: float, mean_tokens: float, preset: str) -> float:
        """Requests per second that keep the engines' prefill busy for that share of the time."""
        return load * self.engines / (mean_tokens * (self.prefill or PREFILL[preset]))


Make = Callable[[Pace, int], list[Job]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`warm_up` is the share of the run that is reported apart."""

    about: str
    preset: str
    warm_up: float
    jobs: Make


def _head_of_line(load: float) -> Make:
    def make(pace: Pace, seed: int) -> list[Job]:
        rate = pace.rate(load, mean_prompt(HEAD_OF_LINE), "serial")
        return poisson(HEAD_OF_LINE, rate, max(10, int(rate * pace.seconds)), seed)

    return make


def _burst(pace: Pace, seed: int) -> list[Job]:
    """A wave of long prompts, a quarter into steady short ones."""
    random = Random(seed)
    start = pace.seconds / 4
    wave = [
        Job(start + random.uniform(0.0, _WAVE_SECONDS), random.randint(3_000, 16_000), 40)
        for _ in range(_WAVE)
    ]
    return merge(poisson(_STEADY, _STEADY_RATE, int(_STEADY_RATE * pace.seconds), seed), wave)


def _chat(pace: Pace, seed: int) -> list[Job]:
    rate = pace.rate(_CHAT_LOAD, mean_prompt(_CHAT), "a100-llama-8b")
    return poisson(_CHAT, rate, max(10, int(rate * pace.seconds)), seed)


SCENARIOS = {
    "hol-35": Scenario(
        "90% prompts of 100 tokens, 10% of 8,000, engines 35% loaded", "serial", 0.1,
        _head_of_line(0.35),
    ),
    "hol-70": Scenario(
        "90% prompts of 100 tokens, 10% of 8,000, engines 70% loaded", "serial", 0.1,
        _head_of_line(0.70),
    ),
    "burst": Scenario(
        f"{_WAVE} prompts of 3,000 to 16,000 tokens in {_WAVE_SECONDS:g} s, into 8 short ones a "
        "second; what came before the wave is left out",
        "a100-llama-8b", 0.25, _burst,
    ),
    "chat": Scenario(
        "prompts of 150, 600 and 1,800 tokens, answers of 64, engines 25% loaded",
        "a100-llama-8b", 0.1, _chat,
    ),
}  # fmt: skip
GROUPS = {"hol": ("hol-35", "hol-70"), "burst": ("burst",), "chat": ("chat",)}


def named(text: str) -> list[str]:
    """`hol,burst` as names of scenarios. Raises ValueError."""
    found: list[str] = []
    for part in text.split(","):
        if part not in GROUPS and part not in SCENARIOS:
            raise ValueError(f"no such scenario: {part}; there are {', '.join(GROUPS)}")
        found += GROUPS.get(part, (part,))
    return found
