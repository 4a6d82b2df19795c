"""A plan keeps its flags in every form that it takes, and its reasons beside them."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.plans import file, render
from backends.plans.model import Engine, Flag, Plan, Variable

PLAN = Plan(
    engines=(
        Engine(
            name="short-0",
            model="/models/a: b",
            classes=("short",),
            port=8001,
            gpus=(0, 1),
            flags=(
                Flag("max-num-seqs", 32, "because: 2 × 16"),
                Flag("gpu-memory-utilization", 0.85, "so"),
                Flag("enforce-eager", True, "why not"),
            ),
            environment=(Variable("VLLM_USE_FASTOKENS", "1", "proved"),),
        ),
        Engine(name="all-0", model="m", classes=(), port=8002),
    ),
    notes=("read this",),
)
OPTIONS = ["--max-num-seqs", "32", "--gpu-memory-utilization", "0.85", "--enforce-eager"]


def values(plan: Plan) -> Any:
    return [
        (e.name, e.model, e.classes, e.port, e.gpus, e.arguments(), e.variables(), e.limit)
        for e in plan.engines
    ]


def test_a_plan_file_reads_back_as_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(file.write(PLAN))
    assert values(file.read(path)) == values(PLAN)
    assert file.read(path).command == ("vllm", "serve")
    assert "# because: 2 × 16" in path.read_text()
    assert "# read this" in path.read_text()


def told(plan: Plan) -> list[str]:
    return [item.reason for engine in plan.engines for item in (*engine.flags, *engine.environment)]


def test_a_plan_file_reads_back_with_its_reasons(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(file.write(PLAN))
    assert told(file.read(path)) == ["because: 2 × 16", "so", "why not", "proved"]
    assert file.read(path).notes == ("read this",)
    assert file.write(file.read(path)) == path.read_text()


def test_what_a_person_wrote_has_reasons_where_they_stand_behind_a_value(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "engines:\n"
        "  a: {model: m, port: 1, flags: {x: 1, y: 2}}  # of neither\n"
        "  b:  # of the engine\n"
        "    model: m\n    port: 2\n"
        "    flags:\n      --max_num_seqs: 3 # mine\n      served-model-name: 'a # b'\n      z: 4"
    )
    default = "as the plan says"
    assert told(file.read(path)) == [default, default, "mine", default, default]


def test_an_engine_is_the_same_whatever_its_reasons_say() -> None:
    flag, variable = Flag("max-num-seqs", 3, "why"), Variable("A", "1", "why")
    assert (flag, variable) == (Flag("max-num-seqs", 3, ""), Variable("A", "1", ""))
    assert flag != Flag("max-num-seqs", 4, "why")


def test_the_limit_is_what_the_engine_runs_at_a_time() -> None:
    assert [engine.limit for engine in PLAN.engines] == [32, 64]


def test_command_lines_run_in_a_shell() -> None:
    short, _ = render.flags(PLAN).split("\n\n")[1:]
    words = shlex.split(short.replace("\\\n", " "), comments=True)
    assert words[:3] == ["CUDA_VISIBLE_DEVICES=0,1", "VLLM_USE_FASTOKENS=1", "vllm"]
    assert words[3:5] == ["serve", "/models/a: b"]
    assert words[5:] == ["--port", "8001", *OPTIONS]
    assert "#   --max-num-seqs: because: 2 × 16" in short


def test_compose_services() -> None:
    text = render.compose(PLAN)
    service = yaml.safe_load(text)["services"]["short-0"]
    assert service["command"][:2] == ["/models/a: b", "--port=8000"]
    assert service["command"][2] == "--max-num-seqs=32"
    assert service["command"][-1] == "--enforce-eager"
    assert service["environment"] == {"VLLM_USE_FASTOKENS": "1"}
    assert service["ports"] == ["8001:8000"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == ["0", "1"]
    assert "  # because: 2 × 16" in text
    plain = yaml.safe_load(text)["services"]["all-0"]
    assert plain.keys() == {"image", "command", "ports", "ipc"}


def test_kubernetes_containers() -> None:
    text = render.kubernetes(PLAN)
    short, plain = yaml.safe_load_all(text)
    assert short["args"][:3] == ["/models/a: b", "--port=8000", "--max-num-seqs=32"]
    assert short["env"] == [{"name": "VLLM_USE_FASTOKENS", "value": "1"}]
    assert short["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert short["ports"] == [{"name": "http", "containerPort": 8000}]
    assert "env" not in plain
    assert "  # because: 2 × 16" in text


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "the plan"),
        ({"engines": {}}, "engines: "),
        ({"engines": {"a": {"model": "m"}}}, "engines.a.port: Field required"),
        ({"engines": {"A": {"model": "m", "port": 1}}}, "engines.A"),
        ({"engines": {"a": {"model": "m", "port": 1, "flag": 1}}}, "engines.a.flag: Extra"),
        ({"engines": {"a": {"model": "m", "port": 0}}}, "engines.a.port"),
        (
            {"engines": {"a": {"model": "m", "port": 1}, "b": {"model": "m", "port": 1}}},
            "two engines have the same port",
        ),
        (
            {"engines": {"a": {"model": "m", "port": 1, "flags": {"--port": 9}}}},
            "engines.a.flags: port is decided by the plan",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(document: Any, why: str) -> None:
    with pytest.raises(file.BadPlan, match=why):
        file.parse(document)


def test_flags_may_be_written_as_on_the_command_line() -> None:
    plan = file.parse({"engines": {"a": {"model": "m", "port": 1, "flags": {"--max_num_seqs": 3}}}})
    assert plan.engines[0].arguments() == ("m", "--max-num-seqs", "3")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(file.BadPlan, match=r"cannot read .*nothing.yaml"):
        file.read(tmp_path / "nothing.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("engines: [")
    with pytest.raises(file.BadPlan, match=r"cannot read .*bad.yaml"):
        file.read(bad)
    bad.write_text("engines: 7")
    with pytest.raises(file.BadPlan, match=r"bad.yaml: engines"):
        file.read(bad)
