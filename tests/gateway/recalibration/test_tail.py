"""A log is followed over cut lines and rotation."""

from pathlib import Path

from gateway.recalibration.tail import Tail
from tests.gateway.report.days import line


def test_only_what_is_added_and_whole_is_read(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(line(0.1) * 3)
    tail = Tail([path])
    assert list(tail.lines()) == []
    cut = line(0.2)
    with path.open("ab") as file:
        file.write(line(0.3) + cut[:20])
    assert [one.ttft for one in tail.lines()] == [0.3]
    with path.open("ab") as file:
        file.write(cut[20:] + b"garbage\n")
    assert [one.ttft for one in tail.lines()] == [0.2]
    assert list(tail.lines()) == []


def test_a_log_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(line(0.1) * 3)
    tail = Tail([path])
    path.rename(tmp_path / "requests.jsonl.1")
    path.write_bytes(line(0.4))
    assert [one.ttft for one in tail.lines()] == [0.4]
