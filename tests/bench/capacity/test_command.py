"""The command: a trace in, an answer, a file and a picture out."""

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from bench.capacity.__main__ import app
from bench.costs import UnknownCosts, read, told
from bench.engine import SERIAL
from bench.traces import FOLDER, UnknownTrace, find
from tests.bench.capacity.cases import SPEC, sizes


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """As Azure writes one."""
    path, start = tmp_path / "trace.csv", datetime(2026, 1, 1)  # noqa: DTZ001
    rows = [
        f"{start + timedelta(seconds=job.at)},{job.prompt},{job.output}" for job in sizes(500, 1)
    ]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    return path


def test_it_answers_with_the_rule_beside_it_a_file_and_a_picture(
    trace: Path, tmp_path: Path
) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "goodput.png"
    options = ["--qps", "30", "--slo", "mean=250,p95=900", "--warm-up", "1", "--brute-force"]
    ended = CliRunner().invoke(
        app,
        [*options, "--trace", str(trace), "--json", str(result), "--figure", str(picture)],
        catch_exceptions=False,
    )
    assert ended.exit_code == 0, ended.output
    document = orjson.loads(result.read_bytes())
    summary, detail = document["summary"], document["detail"]
    assert document.keys() == {"schema", "summary", "detail", "environment"}
    assert f"{summary['engines']} engines hold mean=250,p95=900" in ended.stdout
    assert summary["engines_rule_at_target"] == 9  # 30 x 0.25 x 1.2
    assert f"the rule, 30 x {summary['ttft_alone_mean_ms']:.0f} ms + 20%" in ended.stdout
    assert "that the objective allows: 9" in ended.stdout
    assert abs(summary["engines"] - summary["engines_brute_force"]) <= 1
    assert summary["runs_brute_force"] > summary["runs_last_step"]
    assert list(detail["steps"]) == ["prefill", "decode", "kv", "rhythm"]
    assert len(detail["reasons"]) == 5
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_forebay_hands_it_on() -> None:
    command = [sys.executable, "-m", "gateway.cli", "capacity", "--qps", "5", "--slo", "p42=1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "forebay capacity: " in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slo", "p95=1"], "no number of engines holds p95=1"),
        ([], "p99=600 needs 1000 requests"),
        (["--trace", "nowhere.csv"], f"set {FOLDER}"),
        # Before the objective, which is known only after a simulation, and lost with it.
        (["--slo", "p95=1", "--json", "/nope/x.json"], "cannot write /nope/x.json: there is no"),
        (["--slo", "p95=1", "--figure", "/nope/x.png"], "cannot write /nope/x.png: there is no"),
    ],
)
def test_what_cannot_be_answered_is_said(trace: Path, options: list[str], said: str) -> None:
    ended = CliRunner().invoke(app, ["--qps", "30", "--trace", str(trace), *options])
    assert ended.exit_code == 1
    assert said in ended.output


def test_a_public_trace_goes_by_a_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(UnknownTrace, match="AzurePublicDataset"):
        find("azure-conv")
    (tmp_path / "azure_llm_2023_conv.csv").touch()
    assert find("azure-conv") == tmp_path / "azure_llm_2023_conv.csv"


def test_costs_are_read_as_they_were_told(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_bytes(orjson.dumps({"summary": told(SPEC, 0.01)}))
    assert read(file, SPEC) == pytest.approx(SPEC)
    assert read(file, SERIAL).prefill_per_token == pytest.approx(SPEC.prefill_per_token)
    file.write_text('{"summary": {}}')
    with pytest.raises(UnknownCosts, match=r"costs\.json holds no engine's costs"):
        read(file, SPEC)
