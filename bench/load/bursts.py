"""Bursts in what was sent: several prompts over the burst size within a window. Pure."""

from collections.abc import Sequence

from bench.load.sample import Sample

SIZE, COUNT, WINDOW = 2048, 4, 1.0
"""Prompt tokens over which a prompt is long; so many within so many seconds are a burst."""


def bursts(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Begin and end of each, in seconds from the run's start; those that overlap are one."""
    long = sorted(sample.intended for sample in samples if sample.prompt_tokens > SIZE)
    found: list[tuple[float, float]] = []
    for first, last in zip(long, long[COUNT - 1 :], strict=False):
        if last - first > WINDOW:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
