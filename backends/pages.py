"""What is wanted of a vLLM metrics page: a few of its thousands of lines.

Parsing a page whole would stop the event loop, so the lines are cut out first.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

CACHE = "vllm:cache_config_info"


def lines_of(page: bytes, name: str) -> Iterable[bytes]:
    """The samples of a metric, with their line ends."""
    wanted = name.encode()
    at = page.find(wanted)
    while at >= 0:
        end = page.find(b"\n", at)
        end = len(page) if end < 0 else end
        if at == 0 or page[at - 1 : at] == b"\n":
            yield page[at:end] + b"\n"
        at = page.find(wanted, end)


def kv_tokens(page: bytes) -> int:
    """The tokens that the smallest engine's KV cache holds; 0 where the page does not say."""
    try:
        sizes = [int(each["num_gpu_blocks"]) * int(each["block_size"]) for each in _caches(page)]
    except (ValueError, KeyError):
        return 0
    return min(sizes, default=0)


def memory_utilization(page: bytes) -> float | None:
    """The least `gpu_memory_utilization` that an engine began with; None where none is said."""
    try:
        shares = [float(each["gpu_memory_utilization"]) for each in _caches(page)]
    except (ValueError, KeyError):
        return None
    return min(shares, default=None)


def _caches(page: bytes) -> list[Mapping[str, str]]:
    """What each engine says of its cache. Raises ValueError for a page that is none."""
    text = b"".join(lines_of(page, CACHE)).decode()
    families = text_string_to_metric_families(text)
    return [sample.labels for family in families for sample in family.samples]
