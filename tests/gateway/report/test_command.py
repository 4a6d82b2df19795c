"""`forebay report` as a person calls it."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from gateway.cli import app
from gateway.record import Outcome
from tests.gateway.report.days import HOUR, NOW, line, write

DAY = 24 * HOUR


def forebay(*options: str) -> Result:
    command = ["report", "--until", str(NOW), *options]
    return CliRunner(env={"COLUMNS": "140"}).invoke(app, command)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = [line(0.03 + i / 1e3, ago=HOUR * (i % 24 + 0.5)) for i in range(100)]
    lines += [line(0.2, ago=DAY + HOUR) for _ in range(20)]
    lines += [line(2.0 + i, service_class="long", backend="long-0") for i in range(30)]
    lines += [line(None, outcome=Outcome.BACKEND_FAILED, backend="long-0", service_class="long")]
    lines += [b"not a line\n"]
    return write(tmp_path / "requests.jsonl", lines)


def test_the_table_has_classes_stages_backends_and_the_day_before(log: Path) -> None:
    shown = forebay("--log", str(log)).stdout
    short = next(row for row in shown.splitlines() if row.startswith("short"))
    assert short.split()[:3] == ["short", "100", "0.0%"]
    assert "-60%" in short  # p50: 79 ms, where it was 200 ms
    assert "100.0% ≤ 0.6 s" in short
    assert "worst backends" in shown
    assert "1 lines could not be read" in shown
    assert "queue" in shown


def test_the_numbers_go_to_a_file_or_to_stdout(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert forebay("--log", str(log), "--json", str(path)).exit_code == 0
    written = orjson.loads(path.read_bytes())
    assert written == orjson.loads(forebay("--log", str(log), "--json", "-").stdout)
    assert written["classes"]["long"]["failed"] == 1
    assert written["until"] - written["since"] == DAY


def test_a_span_and_targets_can_be_given(log: Path) -> None:
    options = ("--since", "1h", "--target", "long=10", "--json", "-")
    found = orjson.loads(forebay("--log", str(log), *options).stdout)
    assert found["classes"]["short"]["requests"] == 5
    assert found["classes"]["long"]["target"] == 10


def test_a_picture_is_drawn(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.png"
    assert forebay("--log", str(log), "--png", str(path)).exit_code == 0
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000
        colours = picture.convert("RGB").getcolors(1 << 24)
    assert colours is not None
    drawn = {colour for count, colour in colours if count > 500}
    assert {(0x2F, 0x6F, 0xED), (0x7F, 0xA3, 0xE0)} <= drawn, "a curve and a bar are there"


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib/__init__.py").write_text("raise ImportError('not here')")
    code = "from gateway.report.picture import draw; draw(None, None)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "NoPictures: pictures need matplotlib: pip install 'forebay[bench]'" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "yesterday"), "90m, 24h or 7d"),
        (("--since", "0h"), "90m, 24h or 7d"),
        (("--target", "short"), "CLASS=SECONDS"),
        (("--target", "short=-1"), "CLASS=SECONDS"),
    ],
)
def test_what_cannot_be_understood_is_said(log: Path, options: tuple[str, ...], said: str) -> None:
    ended = forebay("--log", str(log), *options)
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    ended = forebay("--log", str(tmp_path / "none.jsonl"))
    assert ended.exit_code == 2
    assert "none.jsonl: No such file" in ended.stderr


def test_an_empty_window_says_so(log: Path) -> None:
    assert "no request ended in this window" in forebay("--log", str(log), "--since", "1s").stdout
