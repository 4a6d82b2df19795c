"""What is read from a metrics page."""

import pytest

from backends.pages import kv_tokens, memory_utilization


def line(blocks: str, size: str = "16", engine: str = "0") -> str:
    return (
        f'vllm:cache_config_info{{block_size="{size}",cache_dtype="auto",engine="{engine}",'
        f'num_gpu_blocks="{blocks}"}} 1.0\n'
    )


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        ("# TYPE vllm:cache_config_info gauge\n" + line("100"), 1600),
        (line("100") + line("50", engine="1"), 800),
        (line("None"), 0),
        ('vllm:cache_config_info{block_size="16"} 1.0\n', 0),
        ("vllm:cache_config_info{", 0),
        ("", 0),
    ],
)
def test_the_size_of_the_cache(page: str, tokens: int) -> None:
    assert kv_tokens(page.encode()) == tokens


def share(value: str) -> str:
    return f'vllm:cache_config_info{{gpu_memory_utilization="{value}"}} 1.0\n'


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (share("0.92"), 0.92),
        (share("0.9") + share("0.85"), 0.85),
        (share("None"), None),
        (line("100"), None),
        ("", None),
    ],
)
def test_the_share_of_the_memory(page: str, found: float | None) -> None:
    assert memory_utilization(page.encode()) == found
