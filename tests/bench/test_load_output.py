"""What a run leaves for people and programs, from samples made by hand."""

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.environment import command, environment
from bench.load.live import Live
from bench.load.output import show, show_sweep, write_csv, write_json
from bench.load.run import Effort
from bench.load.sample import Sample
from bench.load.summary import Objective, detail
from tests.bench.test_load_parts import sample

STAGES = (("queue", 0.02),)
SAMPLES = [
    sample(1, 0.123, stages=STAGES),
    sample(2, 0.2, service_class="long", stages=STAGES),
    sample(3, 0.1, error="http_429", status=429, retry_after=2.0),
]


RUN = {"tokenizer_guessed": False, "left_out": 0, "interrupted": False}


def shown(samples: list[Sample], effort: Effort, width: int = 80, **run: object) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width), detail(samples, effort, Objective()), RUN | run)
    return out.getvalue()


def test_the_table_has_each_class_its_errors_and_stages():
    text = shown(SAMPLES, Effort(10.0, 0.5))
    lines = [line.split() for line in text.splitlines()]
    assert ["short", "TTFT", "123.0", "123.0", "123.0", "123.0", "2", "1", "0.3"] in lines
    assert ["long", "TTFT", "200.0", "200.0", "200.0", "200.0", "1", "0", "0.9"] in lines
    assert "short: 1 × http_429, 1 with Retry-After: p50 2 s, max 2 s" in text
    assert "stage queue: p50 20.00 ms" in text
    assert "generator: 5% of a core" in text
    assert "kept its times" in text
    assert "warm-up" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_generator_that_was_late_says_so_loudly():
    late = [sample(n, 0.1, sent=n + 0.05) for n in range(5)]
    assert "part of what was measured" in shown(late, Effort(10.0, 0.5))
    assert "part of what was measured" not in shown(SAMPLES, Effort(10.0, 0.5))


def test_the_warm_up_is_shown_apart_and_what_was_not_as_asked_is_said():
    samples = [sample(0, 9.0, warm_up=True), *SAMPLES]
    text = shown(samples, Effort(10.0, 0.5), tokenizer_guessed=True, left_out=7, interrupted=True)
    assert ["warm-up", "TTFT", "9000.0"] in [line.split()[:3] for line in text.splitlines()]
    for said in ("lengths are guesses", "7 requests left out", "Interrupted"):
        assert said in text
    assert "left out" not in shown(SAMPLES, Effort(10.0, 0.5))


def test_a_sweep_has_a_row_for_each_rate():
    steps = [
        {"rate": rate, **detail(SAMPLES, Effort(10.0, 0.5), Objective())} for rate in (5.0, 10.5)
    ]
    out = io.StringIO()
    show_sweep(Console(file=out, width=120), steps)
    assert [line.split()[0] for line in out.getvalue().splitlines()[-3:-1]] == ["5", "10.5"]


def test_a_run_without_samples_is_shown_too():
    assert "all" in shown([], Effort(1.0, 0.0))


def test_the_csv_has_a_line_for_each_request(tmp_path: Path):
    write_csv(tmp_path / "r.csv", SAMPLES)
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [row["error"] for row in rows] == ["", "", "http_429"]
    assert float(rows[0]["ttft"]) == pytest.approx(0.123)
    assert "gaps" not in rows[0]


def test_the_json_can_be_read_back(tmp_path: Path):
    found = detail(SAMPLES, Effort(10.0, 0.5), Objective())
    write_json(tmp_path / "r.json", {"detail": found, "environment": environment()})
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["detail"] == found
    assert document["environment"]["packages"]["forebay"]


def test_the_command_is_told_without_its_secret_and_its_file():
    typed = ["load", "http://h", "--api-key", "s3", "--rate", "2", "--json=out.json"]
    assert command(["/x/bin/forebay", "bench", *typed]) == "forebay bench load http://h --rate 2"
    assert command(["/x/bench/__main__.py", "hol", "--json", "f"]) == "python -m bench hol"


def test_a_terminal_shows_progress_and_percentiles_and_a_file_nothing():
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, width=100, force_terminal=terminal, color_system=None)
        with Live(console, total=3) as live:
            for one in SAMPLES[2:] + SAMPLES[:2]:
                live.add(one)
        assert ("1/3" in out.getvalue()) is terminal
        assert ("errors 1" in out.getvalue()) is terminal
