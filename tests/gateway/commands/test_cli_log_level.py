"""What `--log-level` takes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app


@pytest.mark.parametrize("command", [("serve",), ("up", "plan.yaml")])
def test_another_level_is_refused_with_those_that_there_are(command: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(app, [*command, "--log-level", "foo"])
    assert ended.exit_code == 2
    assert "--log-level" in ended.stderr
    assert "warning" in ended.stderr


def test_a_level_may_be_written_small(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["up", str(tmp_path / "nothing"), "--log-level", "debug"])
    assert "cannot read" in ended.stderr, "the plan was looked for"
