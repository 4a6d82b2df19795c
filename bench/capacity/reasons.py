"""The source's rule, what the simulator says step by step, and in words why they differ. Pure.

The rule, engines = rate x mean TTFT + 20%, is Little's law: on average so many requests are being
read, each by an engine of its own. What it does not know comes in one at a time here:

    prefill    requests at random moments, answers of one token: what waiting costs
    decode     whole answers, decoded in the steps that read prompts
    kv         a KV cache of the engine's size
    rhythm     the trace's own rhythm in place of random moments
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from bench.capacity.demand import Demand, alone
from bench.capacity.objective import Objective
from bench.workload import Job

RESERVE = 1.2
"""Source: "plus 20%"."""

STEPS = ("prefill", "decode", "kv", "rhythm")
_WINDOW = 10.0


@dataclass(frozen=True, slots=True)
class Rule:
    """`busy` engines are at work on average, `engines` with the reserve; `ttft` in seconds is
    the mean of requests that have an engine for themselves."""

    ttft: float
    busy: float

    @property
    def engines(self) -> int:
        return ceil(self.busy * RESERVE)


def at_target(demand: Demand, objective: Objective) -> int | None:
    """The rule with the mean that the objective allows; None when it speaks of no mean."""
    for limit in objective.limits:
        if limit.share is None and not limit.service_class:
            return ceil(demand.rate * limit.seconds * RESERVE)
    return None


def rule(demand: Demand) -> Rule:
    times = {job.prompt: 0.0 for job in demand.jobs}
    for job in demand.jobs:
        times[job.prompt] = times[job.prompt] or alone(job, demand.spec)
    ttft = sum(times[job.prompt] for job in demand.jobs) / len(demand.jobs)
    return Rule(ttft, demand.rate * ttft)


def peak_to_mean(jobs: Sequence[Job]) -> float:
    """The prompt tokens of the fullest ten seconds over those of the mean ten seconds."""
    tokens: dict[int, int] = {}
    for job in jobs:
        window = int(job.at / _WINDOW)
        tokens[window] = tokens.get(window, 0) + job.prompt
    windows = max(1.0, (jobs[-1].at - jobs[0].at) / _WINDOW)
    return max(tokens.values()) / (sum(tokens.values()) / windows)


def words(found: Mapping[str, int], said: Rule, demand: Demand) -> list[str]:
    """One sentence for each step of the ladder that was found, then the balance."""
    answer = list(found.values())[-1]
    used = said.busy / found["prefill"]
    sentences = [
        f"queueing: prompts that come at random moments wait for each other; with answers of one "
        f"token the objective needs {found['prefill']}, {used:.0%} busy (the rule: "
        f"{1 / RESERVE:.0%} busy)",
        f"decode: {found['decode'] - found['prefill']:+d}: answers (mean "
        f"{_mean_answer(demand):.0f} tokens) are decoded in the steps that read prompts",
        f"KV: {found['kv'] - found['decode']:+d}: a cache of {demand.spec.kv_tokens:,} tokens "
        f"lets only so many in",
    ]
    if "rhythm" in found:
        sentences.append(
            f"burstiness: {found['rhythm'] - found['kv']:+d}: the trace's fullest ten seconds "
            f"bring {peak_to_mean(demand.jobs):.1f} times the mean's prompt tokens"
        )
    return [*sentences, _balance(answer, said)]


def _mean_answer(demand: Demand) -> float:
    return sum(job.output for job in demand.jobs) / len(demand.jobs)


def _balance(answer: int, said: Rule) -> str:
    if answer == said.engines:
        return f"the rule and the simulation agree: {answer}"
    if answer > said.engines:
        return f"the rule's {said.engines} are {answer - said.engines} too few for this objective"
    spare = said.engines - answer
    return f"the rule's {said.engines} are {spare} more than this objective needs"
