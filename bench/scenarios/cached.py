"""Cached: clients that send the same long prompts again and again, each waiting for its answer.

Agents and chats do that: nearly all of a prompt is in the engine's prefix cache, and little is
left to compute. A gateway that takes such prompts for long ones queues them behind each other.
Two A100-class engines; the first prompts, which nobody has cached, are not counted.
"""

from dataclasses import replace
from math import inf

from bench.figures import in_milliseconds, percentile
from bench.policies import forebay, today
from bench.presets import A100_80GB, LLAMA_8B, engine
from bench.scenarios import Report
from bench.simulation import Outcome, Simulation
from bench.workload import Job
from scheduler.model import AffinitySpec, BurstSpec, Placement, Settings

BLOCK = 256
ENGINES = 2
_SPEC = engine(A100_80GB, LLAMA_8B, block_tokens=BLOCK)
_ANSWER = 32
_WARM_UP, _END = 30.0, 60.0
MIXED = (1_700, 8_000, 26_000)


def clients(count: int, sizes: tuple[int, ...]) -> list[Job]:
    """The first request of each client; prompts of different clients have nothing in common."""
    return [
        Job(
            at=number * 0.1,
            prompt=(size := sizes[number % len(sizes)]) + 50,
            output=_ANSWER,
            tenant=str(number),
            prefix=tuple(number * 1000 + block for block in range(size // BLOCK)),
        )
        for number in range(count)
    ]


def policies() -> dict[str, Settings]:
    """Ours as the gateway sets it up, burst rule and all, and the best of today's."""
    ours = forebay(burst=BurstSpec())
    return {
        "forebay": replace(ours, affinity=AffinitySpec(block_tokens=BLOCK)),
        "forebay_without_affinity": replace(ours, affinity=AffinitySpec(blocks=0)),
        "least_requests": today(Placement.LEAST_REQUESTS),
    }


def play(settings: Settings, first: list[Job]) -> list[Outcome]:
    """Each client sends its prompt again 0.1 s after an answer, for a minute."""

    def again(outcome: Outcome) -> Job | None:
        at = (outcome.ended or inf) + 0.1
        return replace(outcome.job, at=at) if at < _END else None

    engines = {f"engine{index}": _SPEC for index in range(ENGINES)}
    outcomes = Simulation(settings, engines).run(first, then=again)
    return [o for o in outcomes if o.job.at >= _WARM_UP]


def run() -> Report:
    """8k prompts at 32 and 64 clients, and mixed ones at 16."""
    loads = {
        "32": clients(32, (8_000,)),
        "64": clients(64, (8_000,)),
        "16_mixed": clients(16, MIXED),
    }
    detail = {
        load: {name: _numbers(play(settings, first)) for name, settings in policies().items()}
        for load, first in loads.items()
    }
    summary = {}
    for load, row in detail.items():
        ours = row["forebay"]
        summary[f"queue_wait_p50_ms_{load}"] = ours["queue_p50"]
        summary[f"queue_wait_p99_ms_{load}"] = ours["queue_p99"]
        summary[f"ttft_p50_ms_{load}"] = ours["p50"]
        summary[f"ttft_p50_ratio_{load}"] = round(ours["p50"] / row["least_requests"]["p50"], 3)
    return Report(summary, dict(detail))


def _numbers(outcomes: list[Outcome]) -> dict[str, float]:
    waits = [o.dispatched - o.job.at for o in outcomes if o.dispatched is not None]
    queue = {f"queue_p{share * 100:.0f}": percentile(waits, share) * 1e3 for share in (0.5, 0.99)}
    return in_milliseconds(outcomes) | queue | {"requests": len(outcomes)}
