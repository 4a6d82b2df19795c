"""What is wanted of a vLLM metrics page: a few of its thousands of lines.

Parsing a page whole would stop the event loop, so the lines are cut out first.
"""

from collections.abc import Iterable

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
    sizes = []
    try:
        text = b"".join(lines_of(page, CACHE)).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = sample.labels
                sizes.append(int(labels["num_gpu_blocks"]) * int(labels["block_size"]))
    except (ValueError, KeyError):
        return 0
    return min(sizes, default=0)
