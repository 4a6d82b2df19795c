"""`forebay tune` at the command line, on a small simulated search."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backends.plans import file
from backends.plans.render import compose
from bench.__main__ import app
from bench.tuning.objective import FLOOR
from tests.bench.schemas import schema

BRIEF = (
    *("--requests", "100", "--windows", "1", "--rate", "8", "--output", "lognormal:4:0.5"),
    *("--search", "long-prefill-token-threshold,max-num-seqs"),
)


def tune(*options: str) -> Result:
    return CliRunner().invoke(app, ["tune", *BRIEF, *options])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    ended = tune(
        *("--evaluations", "10", "--rounds", "8", "--exhaustive", "--study", str(folder / "study")),
        *("--json", str(folder / "found.json"), "--pictures", str(folder)),
        *("--write-plan", str(folder / "plan.yaml")),
    )
    assert ended.exit_code == 0, ended.output
    return folder


def test_its_result_is_as_the_schema_says(done: Path) -> None:
    found = json.loads((done / "found.json").read_bytes())
    schema("tune").validate(found)
    summary, detail = found["summary"], found["detail"]
    spent = sum(row["windows"] for row in detail["candidates"]) + 1
    assert summary["evaluations"] == spent <= 10
    assert summary["exhaustive_evaluations"] == summary["candidates"] == 30
    assert summary["regret"] <= 0.05
    assert summary["improved"]
    assert summary["ratio_high"] < 1.0
    assert detail["floor_per_s"] == pytest.approx(FLOOR * detail["defaults"]["throughput"], 1e-3)
    assert summary["best"] == min(
        round(row["ttft_p99"] * 1e3, 3) for row in detail["candidates"] if not row["ruled_out_by"]
    )


def test_its_plan_is_what_up_and_compose_take(done: Path) -> None:
    chosen = json.loads((done / "found.json").read_bytes())["summary"]["best_flags"]
    plan = file.read(done / "plan.yaml")
    (engine,) = plan.engines
    named = {flag.name: flag.value for flag in engine.flags}
    assert chosen.items() <= named.items()
    assert engine.limit == chosen["max-num-seqs"]
    assert f"--max-num-seqs={engine.limit}" in compose(plan)
    assert "measured TTFT p99" in (done / "plan.yaml").read_text(), "the evidence is beside it"


def test_its_curves_are_drawn(done: Path) -> None:
    assert (done / "tune-response.png").read_bytes().startswith(b"\x89PNG")


def test_its_study_goes_on(done: Path) -> None:
    before = json.loads((done / "found.json").read_bytes())["summary"]["evaluations"]
    ended = tune(
        *("--evaluations", "12", "--rounds", "0", "--study", str(done / "study")),
        *("--json", str(done / "more.json")),
    )
    assert ended.exit_code == 0, ended.output
    after = json.loads((done / "more.json").read_bytes())["summary"]["evaluations"]
    assert before < after <= 12
    assert ended.stderr.count("evaluations") == 0, "no bar where there is no terminal"
    lines = [line for line in ended.stderr.splitlines() if "TTFT p99" in line]
    assert len(lines) == after - before, "only what was not known is measured"


def test_a_changed_search_does_not_take_the_study(done: Path) -> None:
    ended = tune("--seed", "1", "--study", str(done / "study"))
    assert ended.exit_code == 1
    assert "is of another search: it differs in traffic" in str(ended.exception)


def test_goodput_is_an_aim(tmp_path: Path) -> None:
    ended = tune("--aim", "goodput", "--evaluations", "6", "--json", str(tmp_path / "found.json"))
    assert ended.exit_code == 0, ended.output
    found = json.loads((tmp_path / "found.json").read_bytes())
    schema("tune").validate(found)
    assert found["summary"]["objective"] == "goodput_per_s"


def test_no_plan_is_written_when_nothing_is_better(tmp_path: Path) -> None:
    ended = tune(
        *("--rate", "0.5", "--prompt", "50", "--evaluations", "4"),
        *("--write-plan", str(tmp_path / "plan.yaml")),
    )
    assert ended.exit_code == 0, ended.output
    assert "cannot improve on the engine's defaults" in ended.stdout
    assert not (tmp_path / "plan.yaml").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--engine", "managed"), "--plan FILE"),
        (("--gpu", "abacus"), "--gpu takes one of"),
        (("--class", "huge"), "--class takes one of"),
        (("--search", "swap-space"), "no such flag: swap-space"),
        (("--class", "long", "--prompt", "5"), "no request of the traffic is of class long"),
    ],
)
def test_what_cannot_be_is_refused(options: tuple[str, ...], says: str) -> None:
    ended = tune(*options)
    assert ended.exit_code == 1
    assert says in str(ended.exception)
