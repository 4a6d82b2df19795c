"""The request log: one line of JSON for each request, complete after close, never prompt text."""

import json
from pathlib import Path

from gateway.log import MAX_PENDING_LINES, RequestLog
from tests.gateway.records import RECORD


async def test_every_record_is_one_line_with_its_times(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    log = RequestLog(str(file))
    for _ in range(3):
        log.write(RECORD)
    await log.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 3
    assert lines[0]["outcome"] == "completed"
    assert lines[0]["stages"] == {"read": 0.001, "tokenize": 0.002}
    assert lines[0]["time"] > 1_700_000_000


async def test_an_existing_log_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("{}\n")
    log = RequestLog(str(file))
    log.write(RECORD)
    await log.close()
    assert len(file.read_text().splitlines()) == 2


async def test_a_target_that_cannot_keep_up_costs_lines_not_memory(tmp_path: Path) -> None:
    log = RequestLog(str(tmp_path / "requests.jsonl"))
    for _ in range(MAX_PENDING_LINES + 5):
        log.write(RECORD)
    assert log.dropped == 5
    await log.close()
