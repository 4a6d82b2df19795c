"""The reckoning as a program: a log and settings in, costs and a proposal out."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from bench.costs import read
from bench.recalibrate.__main__ import app
from bench.recalibrate.document import told_changes
from tests.bench.recalibrate.logs import SPEC, played, traffic, write

CLASSES = {
    "short": {"max_prompt_tokens": 1024, "ttft_target": 0.6, "limit": None, "spill": []},
    "long": {"max_prompt_tokens": None, "ttft_target": 5.0, "limit": None, "spill": []},
}


def reckon(folder: Path) -> Result:
    settings = folder / "settings.json"
    settings.write_bytes(orjson.dumps({"classes": CLASSES, "backends": {}}))
    files = {"--log": "requests.jsonl", "--settings": "settings.json", "--json": "costs.json"}
    options = [text for option, name in files.items() for text in (option, str(folder / name))]
    return CliRunner().invoke(app, options, catch_exceptions=False)


def test_it_tells_costs_slow_backends_bounds_and_what_has_changed(tmp_path: Path) -> None:
    slow = replace(SPEC, prefill_per_token=2 * SPEC.prefill_per_token, step_base=0.024)
    write(tmp_path / "requests.jsonl", played(traffic(500, 5.0), [SPEC, SPEC, slow]))
    (tmp_path / "costs.json").write_text('{"summary": {"prefill_us": 60.0, "step_ms": 13.0}}')
    ended = reckon(tmp_path)
    assert ended.exit_code == 0, ended.output
    assert "since the last time: prefill_us 60 → " in ended.stdout
    assert "backend b-2 is " in ended.stdout
    assert "bound   1024 (now): p99 stretch" in ended.stdout
    assert "the bound of 1024 tokens stays" in ended.stdout
    document = orjson.loads((tmp_path / "costs.json").read_bytes())
    assert document["summary"]["requests"] == 500
    assert document["detail"]["changes"] == []
    assert read(tmp_path / "costs.json", SPEC).step_base > 0.01


def test_what_cannot_be_learned_is_said(tmp_path: Path) -> None:
    write(tmp_path / "requests.jsonl", played(traffic(9, 5.0), [SPEC]))
    (tmp_path / "costs.json").write_text("something else")
    ended = reckon(tmp_path)
    assert ended.exit_code == 1
    assert "of each 30 are needed" in ended.output
    assert (tmp_path / "costs.json").read_text() == "something else"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ({}, []),
        ({"step_ms": 10.5}, []),
        ({"step_ms": 8.0}, ["step_ms 8 → 10 (+25%)"]),
        ({"step_ms": 20.0}, ["step_ms 20 → 10 (-50%)"]),
        ({"step_ms": 0.0}, []),
    ],
)
def test_costs_that_moved_by_a_tenth_are_told(before: dict[str, float], told: list[str]) -> None:
    costs = ("overhead_ms", "step_ms", "prefill_us", "decode_us", "attention_ns")
    after = dict.fromkeys(costs, 10.0)
    assert told_changes(before, after) == told
