"""What is claimed, and which figures of which result stand for it. Pure."""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Summaries = Mapping[str, Mapping[str, float]]
"""By step, the `summary` of its result."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Claim:
    """`figure` is a text with the summary's names in braces, as `{ttft_ms_p50:.1f} ms`."""

    about: str
    step: str
    figure: str

    def told(self, summaries: Summaries) -> str:
        """The figure; a name that the result does not have is a dash."""
        summary = summaries.get(self.step)
        if summary is None:
            return NOT_MEASURED
        return _Figures().vformat(self.figure, (), summary)


class _Figures(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key)

    def format_field(self, value: Any, format_spec: str) -> str:
        return "–" if value is None else format(value, format_spec)


CLAIMS = (
    Claim(
        "the load generator adds little to what it measures", "selfcheck",
        "{closed_added_ms_p50:.3f} ms at the median, {closed_cpu_us_per_request:.0f} µs CPU",
    ),
    Claim(
        "added TTFT, one request at a time, p50", "overhead",
        "{added_ttft_ms_p50:.2f} ms; nginx {nginx_added_ttft_ms_p50:.2f}, vllm-router "
        "{vllm_router_added_ttft_ms_p50:.2f}, aiohttp {aiohttp_added_ttft_ms_p50:.2f}",
    ),
    Claim(
        "CPU for a request", "overhead",
        "{cpu_us_per_request:.0f} µs; nginx {nginx_cpu_us_per_request:.0f}, vllm-router "
        "{vllm_router_cpu_us_per_request:.0f}, aiohttp {aiohttp_cpu_us_per_request:.0f}",
    ),
    Claim(
        "CPU for a streamed chunk", "overhead",
        "{cpu_us_per_chunk:.0f} µs; nginx {nginx_cpu_us_per_chunk:.0f}, vllm-router "
        "{vllm_router_cpu_us_per_chunk:.0f}, aiohttp {aiohttp_cpu_us_per_chunk:.0f}",
    ),
    Claim(
        "preprocessing: the common path's CPU over ours", "preprocess",
        "{cpu_ratio_100:.1f} at 100 tokens, {cpu_ratio_8k:.0f} at 8k, {cpu_ratio_32k:.0f} at 32k",
    ),
    Claim(
        "head of line over sockets, 35% load: short TTFT p99", "compare",
        "{hol_35_forebay_short_ttft_ms_p99:.0f} ms; direct {hol_35_direct_short_ttft_ms_p99:.0f}, "
        "nginx {hol_35_nginx_short_ttft_ms_p99:.0f}, vllm-router "
        "{hol_35_vllm_router_short_ttft_ms_p99:.0f}",
    ),
    Claim(
        "the same at 70% load", "compare",
        "{hol_70_forebay_short_ttft_ms_p99:.0f} ms; direct {hol_70_direct_short_ttft_ms_p99:.0f}, "
        "nginx {hol_70_nginx_short_ttft_ms_p99:.0f}, vllm-router "
        "{hol_70_vllm_router_short_ttft_ms_p99:.0f}",
    ),
    Claim(
        "what long prompts pay for it, 70% load: long TTFT p99", "compare",
        "{hol_70_forebay_long_ttft_ms_p99:.0f} ms; direct {hol_70_direct_long_ttft_ms_p99:.0f}, "
        "nginx {hol_70_nginx_long_ttft_ms_p99:.0f}, vllm-router "
        "{hol_70_vllm_router_long_ttft_ms_p99:.0f}",
    ),
    Claim(
        "a wave of long prompts: short TTFT p99", "compare",
        "{burst_forebay_short_ttft_ms_p99:.0f} ms; direct {burst_direct_short_ttft_ms_p99:.0f}, "
        "nginx {burst_nginx_short_ttft_ms_p99:.0f}, vllm-router "
        "{burst_vllm_router_short_ttft_ms_p99:.0f}",
    ),
    Claim(
        "prefix affinity: prompt tokens found in a cache", "prefix",
        "{forebay_hit_share:.0%} of {ideal_hit_share:.0%}; without {direct_hit_share:.0%}, nginx "
        "{nginx_hit_share:.0%}, vllm-router {vllm_router_hit_share:.0%}",
    ),
    Claim(
        "prefix affinity: TTFT p50", "prefix",
        "{forebay_ttft_ms_p50:.0f} ms; without {direct_ttft_ms_p50:.0f}, nginx "
        "{nginx_ttft_ms_p50:.0f}, vllm-router {vllm_router_ttft_ms_p50:.0f}",
    ),
    Claim(
        "head of line, simulated: best of today's rules over ours, short p99", "simulate-hol",
        "{short_p99_ratio_35:.1f} at 35% load, {short_p99_ratio_70:.1f} at 70%",
    ),
    Claim(
        "engines for mean 200 ms and p99 600 ms at a rate, simulated", "simulate-headline",
        "{engines:.0f} at {rate_rps:.0f}/s; best of today's rules {engines_best_other:.0f}",
    ),
    Claim(
        "the first request behind the warm gate, and without it, real vLLM on a CPU", "warm",
        "{gated_ms:.0f} ms; {cold_ms:.0f} without",
    ),
    Claim(
        "the first request after idleness: cooling engine over one kept warm", "idle",
        "{cooling_over_warm:.1f}",
    ),
    Claim(
        "engines killed, frozen, hung: requests without exactly one end", "chaos",
        "{hung:.0f} hung, {wrong:.0f} wrong, {ended_twice:.0f} ended twice, {unrecorded:.0f} "
        "unrecorded of {requests:.0f} in {troubles:.0f} troubles",
    ),
    Claim(
        "TTFT in front of a real vLLM over direct", "ttft",
        "{ratio_default_8k_c1:.2f} at 8k tokens, {ratio_default_26k_c1:.2f} at 26k, one client",
    ),
    Claim(
        "the engine model's error on requests it has not seen, real vLLM on a CPU", "calibrate",
        "{held_out_ttft_error_median:.0%} of the TTFT at the median",
    ),
)  # fmt: skip
