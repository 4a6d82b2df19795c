"""Head of line: nine short prompts for each one that is 80 times as long.

Serial engines (0.1 ms per prompt token, a running long prefill takes every step until it is
done), Poisson arrivals, no decoding. Each ratio is the best of today's policies over ours, for
that number: the policy that is best for short prompts is not the one that is best for long ones.
"""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from bench.engine import SERIAL, EngineSpec
from bench.figures import in_milliseconds
from bench.policies import OTHERS, PEERS, forebay, today
from bench.scenarios import Report
from bench.simulation import Outcome, Simulation
from bench.workload import HEAD_OF_LINE, mean_prompt, poisson

OURS = "forebay"
TUNED = replace(SERIAL, long_prefill_token_threshold=512)
SEEDS = (1, 2, 3)
_POLICIES = {placement.value: today(placement) for placement in OTHERS} | {OURS: forebay()}
_SHORT, _LONG = (shape.prompt for shape in HEAD_OF_LINE)


@dataclass(frozen=True, slots=True)
class Setting:
    """Engines, and their load as a share of what they can prefill."""

    engines: int
    load: float
    spec: EngineSpec = SERIAL


SETTINGS = {
    "35": Setting(2, 0.35),
    "70": Setting(2, 0.70),
    "70_tuned": Setting(2, 0.70, TUNED),
    "shared": Setting(1, 0.70),
}


def play(setting: Setting, policy: str, requests: int, seed: int) -> list[Outcome]:
    """One run of one policy."""
    busy = setting.load * setting.engines
    rate = busy / (mean_prompt(HEAD_OF_LINE) * setting.spec.prefill_per_token)
    jobs = poisson(HEAD_OF_LINE, rate, requests, seed)
    engines = {f"engine{index}": setting.spec for index in range(setting.engines)}
    return Simulation(_POLICIES[policy], engines).run(jobs)


def run(requests: int) -> Report:
    """All settings and policies, `requests` for each of three seeds, percentiles pooled."""
    keys = [(name, policy) for name in SETTINGS for policy in _POLICIES]
    with ProcessPoolExecutor() as pool:
        found = {key: pool.submit(_pooled, *key, requests) for key in keys}
    detail: dict[str, dict[str, dict[str, float]]] = {}
    for (name, policy), future in found.items():
        detail.setdefault(name, {})[policy] = future.result()
    return Report(_summary(detail), dict(detail))


def _pooled(name: str, policy: str, requests: int) -> dict[str, float]:
    """`short_p50` … `long_p99`, in milliseconds, over all seeds together."""
    outcomes = [o for seed in SEEDS for o in play(SETTINGS[name], policy, requests, seed)]
    numbers: dict[str, float] = {}
    for kind, prompt in (("short", _SHORT), ("long", _LONG)):
        mine = in_milliseconds([o for o in outcomes if o.job.prompt == prompt])
        numbers |= {f"{kind}_{key}": value for key, value in mine.items()}
    return numbers


def _summary(detail: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    summary: dict[str, float] = {}
    for name in ("35", "70", "70_tuned"):
        short, long = _ratios(detail[name], detail[name])
        summary[f"short_p99_ratio_{name}"] = short
        summary[f"long_p99_ratio_{name}"] = long
    # The same against peers on engines as they come: what tuning and admission do together.
    short, _ = _ratios(detail["70"], detail["70_tuned"])
    summary["short_p99_ratio_70_tuned_over_untuned"] = short
    short, long = _ratios(detail["shared"], detail["shared"])
    summary["shared_short_p99_ratio"] = short
    summary["shared_long_p99_ratio"] = long
    return {key: round(value, 3) for key, value in summary.items()}


def _ratios(
    theirs: dict[str, dict[str, float]], ours: dict[str, dict[str, float]]
) -> tuple[float, float]:
    """How many times better our short p99 is, and how many times worse our long p99."""
    best_short = min(theirs[peer.value]["short_p99"] for peer in PEERS)
    best_long = min(theirs[peer.value]["long_p99"] for peer in PEERS)
    return best_short / ours[OURS]["short_p99"], ours[OURS]["long_p99"] / best_long
