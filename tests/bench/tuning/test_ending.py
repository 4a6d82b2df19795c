"""How a search ends when it finds nothing, is stopped, or is asked for what cannot be."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.__main__ import app
from bench.stopping import INTERRUPTED
from tests.bench.schemas import schema

BRIEF = (
    *("--requests", "100", "--windows", "1", "--rate", "8", "--output", "lognormal:4:0.5"),
    *("--search", "max-num-seqs"),
)
WITHOUT_GAIN = ("--rate", "0.5", "--prompt", "50", "--evaluations", "4", "--rounds", "0")
RULED_OUT = (
    *("--evaluations", "2", "--rounds", "0", "--windows", "1", "--rate", "40"),
    *("--prompt", "4000", "--output", "500", "--class", "all"),
)


def tune(*options: str) -> Result:
    return CliRunner().invoke(app, ["tune", *options])


def refused(ended: Result, says: str) -> None:
    """Nothing was measured, and the person is told why in one line."""
    assert ended.exit_code == 1
    said = str(ended.exception)
    assert says in said
    assert "\n" not in said
    assert "TTFT p99" not in ended.output


def test_without_a_comparison_a_plan_must_have_the_better_score(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    ended = tune(*BRIEF, *WITHOUT_GAIN, "--write-plan", str(plan))
    assert ended.exit_code == 0, ended.output
    assert "no plan is written" in ended.stderr
    assert not plan.exists()
    ended = tune(*BRIEF, "--evaluations", "8", "--rounds", "0", "--write-plan", str(plan))
    assert ended.exit_code == 0, ended.output
    assert plan.exists()


def test_what_was_not_searched_has_no_measured_reason(tmp_path: Path) -> None:
    plan, found = tmp_path / "plan.yaml", tmp_path / "found.json"
    ended = tune(
        *(*BRIEF, "--evaluations", "8", "--rounds", "0"),
        *("--write-plan", str(plan), "--json", str(found)),
    )
    assert ended.exit_code == 0, ended.output
    assert list(json.loads(found.read_bytes())["detail"]["reasons"]) == ["max-num-seqs"]
    lines = [line for line in plan.read_text().splitlines() if "measured" in line]
    assert [line.split(":")[0].strip() for line in lines] == ["max-num-seqs"]
    assert "gpu-memory-utilization: 0.9  # 0.85–0.90 for a 7B model" in plan.read_text()


def test_a_search_that_rules_out_everything_says_so_with_its_data(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    pictures = ("--pictures", str(tmp_path / "pictures"))
    ended = tune(*RULED_OUT, "--json", str(found), *pictures)
    assert ended.exit_code == 1
    assert "every candidate was ruled out" in str(ended.exception)
    written = json.loads(found.read_bytes())
    schema("tune").validate(written)
    assert written["summary"]["improved"] is False
    assert all(row["ruled_out_by"] for row in written["detail"]["candidates"])
    assert "but ruled out by" in written["detail"]["reasons"]["max-num-seqs"]
    assert "no picture is drawn: no flag was measured at two values" in ended.stderr


def test_brute_force_is_told_also_where_the_search_found_nothing(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    ended = tune(*RULED_OUT, "--search", "max-num-seqs", "--exhaustive", "--json", str(found))
    assert ended.exit_code == 1
    written = json.loads(found.read_bytes())
    schema("tune").validate(written)
    assert "regret" not in written["summary"]
    assert written["summary"]["exhaustive_evaluations"] == written["summary"]["candidates"]


@pytest.mark.parametrize("option", ["--json", "--write-plan"])
def test_where_nothing_can_be_written_nothing_is_measured(tmp_path: Path, option: str) -> None:
    nowhere = tmp_path / "nope" / "x"
    refused(tune(*BRIEF, option, str(nowhere)), f"cannot write {nowhere}: there is no folder")
    refused(tune(*BRIEF, option, str(tmp_path)), "it is a folder; name a file in it")


def test_a_folder_for_pictures_that_cannot_be_is_said_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(tune(*BRIEF, "--pictures", str(tmp_path / "file")), "cannot make the folder")


def test_brute_force_on_real_engines_is_refused_before_the_search(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("engines: {a: {model: m, port: 8001}}\ncommand: [/bin/false]\n")
    refused(
        tune("--engine", "managed", "--plan", str(plan), "--exhaustive"),
        "--exhaustive is for --engine sim",
    )


@pytest.mark.parametrize("content", [b"# No database\n" * 100, None])
def test_what_is_no_study_is_said(tmp_path: Path, content: bytes | None) -> None:
    study = tmp_path / "folder" / "study"
    if content is not None:
        study.parent.mkdir()
        study.write_bytes(content)
    ended = tune(*BRIEF, "--study", str(study))
    refused(ended, f"cannot keep a study in {study}")
    assert "--study takes a new file" in str(ended.exception)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, kept: bool) -> None:
    study = tmp_path / "study"
    more = ("--study", str(study)) if kept else ()
    command = (sys.executable, "-m", "bench", "tune", "--requests", "2000", *more)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        child.stderr.readline()  # of the defaults: now it measures
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode == INTERRUPTED
    last = said.splitlines()[-1]
    assert last.startswith("tune: stopped; ")
    assert (f"go on with --study {study}" in last) is kept
    assert ("is lost: with --study FILE" in last) is not kept
