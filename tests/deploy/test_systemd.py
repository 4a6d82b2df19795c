"""The systemd unit, by systemd's own verifier."""

import subprocess
import sys
from pathlib import Path

from tests.deploy.files import DEPLOY, tool

UNIT = DEPLOY / "systemd/forebay.service"


def verify(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """With a program that exists here in place of the installed one."""
    unit = folder / "forebay.service"
    unit.write_text(text.replace("/opt/forebay/bin/forebay", sys.executable))
    command = [tool("systemd-analyze", "Debian's systemd"), "verify", "--man=no", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    ended = verify(tmp_path, UNIT.read_text())
    assert (ended.returncode, ended.stderr) == (0, "")


def test_it_would_find_a_mistake(tmp_path: Path) -> None:
    ended = verify(tmp_path, UNIT.read_text().replace("ProtectSystem=", "ProtectSistem="))
    assert "ProtectSistem" in ended.stderr


def test_a_stop_may_take_as_long_as_the_drain() -> None:
    from gateway.config import Config

    (limit,) = (
        line.partition("=")[2]
        for line in UNIT.read_text().splitlines()
        if line.startswith("TimeoutStopSec")
    )
    assert float(limit) > Config.model_fields["drain_grace"].default
