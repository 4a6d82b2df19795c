"""The gateway has one core, engine and client have another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def core_of(*, gateway: bool) -> set[int]:
    """The gateway's core, or that of engine and client; on a machine with one they share it."""
    cores = sorted(os.sched_getaffinity(0))
    return {cores[-1]} if gateway else {cores[0]}


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started in the block runs on these cores only, with all its threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
