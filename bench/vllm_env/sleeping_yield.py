"""Loaded by every Python of the vLLM environment: waiting for another process becomes sleeping.

vLLM's engine and its worker wait for each other by calling `os.sched_yield` in a loop. On Linux
6.18 two such loops keep every other process of a two-core machine from running for up to half a
minute (docs/adr/real-vllm-environment.md). Standard library only: the build copies this file.
"""

import os
import time

_SECONDS = 20e-6


def sched_yield() -> None:
    """Give the processor away for 20 µs; the kernel's timer makes about 75 of it."""
    time.sleep(_SECONDS)


os.sched_yield = sched_yield
