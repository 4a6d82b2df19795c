"""The claims of the document that this project started from, one by one, beside what was found.

Pure: assembled from results of other commands. A claim without its result is not measured, never
met.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.report.claims import NOT_MEASURED, Claim, Summaries

Summary = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Headline:
    """`holds` judges the summary; it raises KeyError where that lacks what it needs."""

    name: str
    source: str
    claim: Claim
    holds: Callable[[Summary], bool]


HEADLINES = (
    Headline(
        "preprocessing_share_low",
        "preprocessing is 15% of the TTFT at little concurrency",
        Claim("share of vLLM's own TTFT, 8k tokens, one client", "ttft",
              "{share_direct_default_8k_c1:.0%}"),
        lambda summary: summary["share_direct_default_8k_c1"] >= 0.15,
    ),
    Headline(
        "preprocessing_share_high",
        "it grows to 40% over 16 concurrent requests",
        Claim("the same at 1, 16, 32 and 64 clients", "ttft-curve",
              "{share_direct_default_8k_c1:.0%}, {share_direct_default_8k_c16:.0%}, "
              "{share_direct_default_8k_c32:.0%}, {share_direct_default_8k_c64:.0%}"),
        lambda summary: summary["share_direct_default_8k_c32"] >= 0.4,
    ),
    Headline(
        "preprocessing_spared",
        "it can be spared by preparing requests before vLLM",
        Claim("TTFT through Forebay over direct at 8k and 26k tokens, one client", "ttft",
              "{ratio_default_8k_c1:.2f}, {ratio_default_26k_c1:.2f}"),
        lambda summary: summary["ratio_default_26k_c1"] < 1 > summary["ratio_default_8k_c1"],
    ),
    Headline(
        "warm_up",
        "warm-up brings the first request from 1,200 ms to under 300",
        Claim("first request without and with the warm gate, real vLLM on a CPU", "warm",
              "{cold_ms:.0f} → {gated_ms:.0f} ms"),
        lambda summary: summary["gated_ms"] < 300 and summary["gated_ms"] < summary["cold_ms"],
    ),
    Headline(
        "burst",
        "sudden long prompts must not hold short ones back",
        Claim("short TTFT p99 in a wave of long prompts, over sockets", "compare",
              "{burst_forebay_short_ttft_ms_p99:.0f} ms; direct "
              "{burst_direct_short_ttft_ms_p99:.0f}, nginx {burst_nginx_short_ttft_ms_p99:.0f}"),
        lambda summary: (
            summary["burst_forebay_short_ttft_ms_p99"] < summary["burst_direct_short_ttft_ms_p99"]
        ),
    ),
    Headline(
        "burst_halving",
        "halving the limit helps in a burst",
        Claim("short TTFT p99 without and with halving, simulated", "simulate-burst",
              "{short_p99_no_halving_ms:.0f} → {short_p99_halving_ms:.0f} ms; without the hold "
              "{short_p99_no_hold_no_halving_ms:.0f} → {short_p99_no_hold_halving_ms:.0f}"),
        lambda summary: (
            summary["short_p99_no_hold_halving_ms"] < summary["short_p99_no_hold_no_halving_ms"]
        ),
    ),
    Headline(
        "target_at_scale",
        "TTFT of 200 ms on average and 600 ms at p99",
        Claim("mean and p99, and the engines they take, simulated", "simulate-headline",
              "{ttft_mean_ms:.0f} / {ttft_p99_ms:.0f} ms with {engines:.0f} engines (today's "
              "rules: {engines_best_other:.0f}) at {rate_rps:.0f} requests a second"),
        lambda summary: summary["ttft_mean_ms"] <= 200 and summary["ttft_p99_ms"] <= 600,
    ),
    Headline(
        "target_over_sockets",
        "the same for chats",
        Claim("chat over sockets: short TTFT p50 and p99", "compare",
              "{chat_forebay_short_ttft_ms_p50:.0f} / {chat_forebay_short_ttft_ms_p99:.0f} ms"),
        lambda summary: (
            summary["chat_forebay_short_ttft_ms_p50"] <= 200
            and summary["chat_forebay_short_ttft_ms_p99"] <= 600
        ),
    ),
)  # fmt: skip


def judged(summaries: Summaries) -> list[dict[str, Any]]:
    """For each: what the source says, what was found, and `met`: None where it is not known."""
    return [
        {
            "name": one.name,
            "source": one.source,
            "about": one.claim.about,
            "step": one.claim.step,
            "figure": one.claim.told(summaries),
            "met": _met(one, summaries),
        }
        for one in HEADLINES
    ]


def _met(one: Headline, summaries: Summaries) -> bool | None:
    try:
        return one.holds(summaries[one.claim.step])
    except KeyError:
        return None


def summary(found: list[dict[str, Any]]) -> dict[str, float]:
    """1 for met, 0 for missed; what is not known is left out and counted."""
    known = {one["name"]: float(one["met"]) for one in found if one["met"] is not None}
    return known | {"met": sum(known.values()), "not_measured": len(found) - len(known)}


def word(met: bool | None) -> str:
    return NOT_MEASURED if met is None else "met" if met else "missed"
