"""What can be tuned, and where its search begins."""

from pathlib import Path

import pytest
import yaml

from backends.plans.file import BadPlan
from bench.tuning import targets
from bench.tuning.managed import Managed
from bench.tuning.space import Flags
from bench.tuning.traffic import ALL, Traffic

TRAFFIC = Traffic(rate=5.0, requests=50, prompt="100@0.9,8000@0.1", output="16")
ENGINES = {
    "short-0": {"model": "m", "port": 8001, "flags": {"max-num-seqs": 24, "dtype": "float16"}},
    "long-0": {"model": "m", "port": 8002, "flags": {"gpu-memory-utilization": 0.85}},
}


def plan_file(folder: Path, *names: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"engines": {name: ENGINES[name] for name in names}}))
    return path


def test_an_engine_of_a_plan_begins_with_its_own_flags(tmp_path: Path) -> None:
    path = plan_file(tmp_path, "short-0", "long-0")
    found = targets.managed(path, "short-0", TRAFFIC, tmp_path)
    assert found.space.start == Flags(24, 2048, 0, None)
    assert isinstance(found.evaluator, Managed)
    assert found.evaluator.engine.name == found.name == "short-0"
    other = targets.managed(path, "long-0", TRAFFIC, tmp_path)
    assert other.space.start.gpu_memory_utilization == 0.85


def test_the_only_engine_of_a_plan_needs_no_name(tmp_path: Path) -> None:
    path = plan_file(tmp_path, "long-0")
    assert targets.managed(path, None, TRAFFIC, tmp_path).name == "long-0"


def test_of_several_one_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match="takes one of long-0, short-0"):
        targets.managed(plan_file(tmp_path, *ENGINES), None, TRAFFIC, tmp_path)


def test_a_model_s_plan_follows_the_rules_for_its_traffic() -> None:
    found = targets.simulated("a100-80gb", TRAFFIC)
    (engine,) = found.plan.engines
    assert (engine.name, engine.classes) == ("short", ("short",))
    assert found.space.start == Flags(48, 12_288, 0, 0.9), "the short row: a mean of 100 tokens"


def test_an_engine_for_all_classes_is_for_none_in_particular() -> None:
    mixed = Traffic(rate=5.0, requests=50, prompt="100", output="16", service_class=ALL)
    (engine,) = targets.simulated("h100", mixed).plan.engines
    assert engine.classes == ()
