"""Every flag that a plan can have is one that the installed vLLM takes, with the value meant."""

import json
import os
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from backends.plans.model import Engine, Flag
from backends.plans.rules import Demand, Hardware, environment_for, flags_for
from backends.plans.shapes import Shape, assumed
from bench.vllm_env import serve
from bench.vllm_env.layout import REPOSITORY, Layout

PARSER = Path(__file__).with_name("parser.py")
SHAPES = (assumed(1024), assumed(None), Shape(600, 1900, 4000, 9))
MODELS = ((7.0, 1), (13.0, 1), (70.0, 4))


def every_engine() -> list[Engine]:
    """A plan of each kind: the combinations reach every rule."""
    engines = []
    for (size, gpus), shape, peak, proved in product(
        MODELS, SHAPES, (False, True), (None, False, True)
    ):
        demand = Demand("c", shape, 0.6, fastokens=proved, peak=peak)
        flags = flags_for(Hardware(size, 80, gpus), demand)
        engines.append(
            Engine("e", "m", ("c",), 8000, flags=flags, environment=environment_for(demand))
        )
    return engines


def parsed(layout: Layout, lines: list[list[str]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(layout.python), str(PARSER)],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        env=os.environ | serve.settings(),
        cwd=REPOSITORY,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_the_installed_vllm_takes_every_flag_of_every_plan(layout: Layout) -> None:
    engines = every_engine()
    reached = {flag.name for engine in engines for flag in engine.flags}
    assert reached == {
        "max-num-seqs",
        "max-num-batched-tokens",
        "gpu-memory-utilization",
        "tensor-parallel-size",
        "max-num-queued-tokens",
        "long-prefill-token-threshold",
        "kv-offloading-size",
        "renderer-num-workers",
    }
    came_to = parsed(layout, [list(engine.arguments()[1:]) for engine in engines])
    for engine, values in zip(engines, came_to, strict=True):
        for flag in engine.flags:
            assert values[flag.name.replace("-", "_")] == flag.value


def test_the_check_would_notice_a_flag_that_is_gone(layout: Layout) -> None:
    gone = Flag("swap-space", 4, "the source's")
    with pytest.raises(AssertionError, match="unrecognized arguments: --swap-space"):
        parsed(layout, [list(gone.arguments())])


def test_the_variables_of_plans_are_ones_that_vllm_reads(layout: Layout) -> None:
    names = {v.name for engine in every_engine() for v in engine.environment}
    assert names == {"VLLM_USE_FASTOKENS"}
    code = (
        "import sys, vllm.envs as e; print(all(n in e.environment_variables for n in sys.argv[1:]))"
    )
    done = subprocess.run(
        [str(layout.python), "-c", code, *names],
        capture_output=True,
        text=True,
        env=os.environ | serve.settings(),
        timeout=240,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "True"
