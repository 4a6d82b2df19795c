"""Pictures: each is drawn, says what its axes are, and shows all of what it was given."""

from pathlib import Path
from typing import Any

import pytest

from bench.load.run import Effort
from bench.load.sample import Sample
from bench.load.summary import Objective, detail
from bench.pictures import style
from bench.pictures.load import draw_run, draw_sweep
from tests.bench.test_load_parts import sample

STAGES = (("read", 0.001), ("tokenize", 0.002), ("queue", 0.02), ("backend", 0.05))
PNG = b"\x89PNG"


def mixed() -> list[Sample]:
    burst = [sample(3, 0.9, service_class="long", prompt_tokens=9000) for _ in range(5)]
    short = [sample(n, 0.1 + n / 100, stages=STAGES) for n in range(30)]
    return [*short, *burst, sample(7, 0, error="http_429", first_token=None)]


def found(samples: list[Sample]) -> dict[str, Any]:
    return detail(samples, Effort(10.0, 0.5), Objective())


def test_a_run_is_drawn(tmp_path: Path):
    paths = draw_run(tmp_path / "new", mixed(), found(mixed()))
    assert [path.name for path in paths] == [
        "ttft-cdf.png", "ttft-over-time.png", "ttft-stages.png",
    ]  # fmt: skip
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_without_stages_there_is_no_waterfall_and_without_first_tokens_nothing(tmp_path: Path):
    plain = [sample(1, 0.1), sample(2, 0.2)]
    assert len(draw_run(tmp_path, plain, found(plain))) == 2
    silent = [sample(1, 0.1, first_token=None)]
    assert draw_run(tmp_path, silent, found(silent)) == []


def test_a_sweep_is_drawn(tmp_path: Path):
    steps = [{"rate": rate, **found(mixed())} for rate in (5.0, 10.0)]
    steps.append({"rate": 20.0, **found([])})
    path = draw_sweep(tmp_path, steps)
    assert path.name == "latency-against-load.png"
    assert path.read_bytes().startswith(PNG)


def test_colours_and_markers_differ_and_follow_the_names():
    names = ["short", "long", "all"]
    assert len({style.colour(names, name) for name in names}) == 3
    assert len({style.marker(names, name) for name in names}) == 3


@pytest.mark.parametrize("value", [0.5, 20.0, 1000.0])
def test_a_logarithmic_axis_has_numbers_for_people(value: float):
    _, (axes,) = style.panels()
    axes.set_xscale("log")
    style.plain_numbers(axes.xaxis)
    assert axes.xaxis.get_major_formatter()(value) == f"{value:,.10g}"
