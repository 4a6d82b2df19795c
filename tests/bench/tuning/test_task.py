"""What a study file is for: whatever changes a measurement changes it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.tuning.book import Book, BookFailed
from bench.tuning.objective import Aim
from bench.tuning.search import Budget
from bench.tuning.targets import EngineKind, managed
from bench.tuning.task import Order, task_of
from bench.tuning.traffic import Traffic
from bench.workload import Job

RECORDED = (Job(0.0, 100, 5), Job(1.0, 200, 5))
TRAFFIC = Traffic(5.0, 20, "100", "5", recorded=RECORDED)
PLAN = """
command: [vllm, serve]
engines: {a: {model: m, port: 8001, gpus: [0], environment: {VLLM_X: "1", HF_TOKEN: s3cret}}}
"""


def task(tmp_path: Path, *, plan: str = PLAN, traffic: Traffic = TRAFFIC) -> dict[str, Any]:
    path = tmp_path / "plan.yaml"
    path.write_text(plan)
    order = Order(
        EngineKind.MANAGED, "a100-40gb", path, None, Aim.TTFT, Budget(), 0, None, ("max-num-seqs",)
    )
    return task_of(order, traffic, managed(path, None, traffic, tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("[vllm, serve]", "[other, serve]", "command"),
        ('VLLM_X: "1"', 'VLLM_X: "2"', "environment_sha256"),
        ("gpus: [0]", "gpus: [1]", "gpus"),
        ("model: m", "model: n", "model"),
    ],
)
def test_another_engine_is_another_task(tmp_path: Path, old: str, new: str, differs: str) -> None:
    before, after = task(tmp_path), task(tmp_path, plan=PLAN.replace(old, new))
    assert [name for name in before if before[name] != after[name]] == [differs]


@pytest.mark.parametrize("changed", [{"at": 0.5}, {"prompt": 201}, {"output": 6}])
def test_another_trace_of_as_many_requests_does_not_take_the_study(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    other = replace(TRAFFIC, recorded=(RECORDED[0], replace(RECORDED[1], **changed)))
    before, after = task(tmp_path), task(tmp_path, traffic=other)
    space = managed(tmp_path / "plan.yaml", None, TRAFFIC, tmp_path).space
    Book(space, before, 0, tmp_path / "study")
    Book(space, before, 0, tmp_path / "study")
    with pytest.raises(BookFailed, match=r"differs in traffic; .*--study"):
        Book(space, after, 0, tmp_path / "study")


def test_the_environment_s_secrets_stay_out_of_it(tmp_path: Path) -> None:
    assert "s3cret" not in str(task(tmp_path))
