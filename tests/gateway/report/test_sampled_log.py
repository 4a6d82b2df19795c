"""A log of which only a share is written still tells how many there were."""

from pathlib import Path

from gateway.log import RequestLog
from gateway.record import Outcome
from gateway.report.lines import Log
from tests.gateway.report.days import record

MANY = 4000


async def test_what_went_well_is_sampled_and_what_did_not_is_all_there(tmp_path: Path) -> None:
    log = RequestLog(str(tmp_path / "log"), sample=0.25)
    for _ in range(MANY):
        log.write(record(0.1))
    for _ in range(10):
        log.write(record(None, outcome=Outcome.SHED, status=429))
    await log.close()
    lines = list(Log([tmp_path / "log"]))
    failed = [line for line in lines if line.outcome == "shed"]
    completed = [line for line in lines if line.outcome == "completed"]
    assert [line.weight for line in failed] == [1.0] * 10
    assert {line.weight for line in completed} == {4.0}
    assert 0.8 * MANY < sum(line.weight for line in completed) < 1.2 * MANY
