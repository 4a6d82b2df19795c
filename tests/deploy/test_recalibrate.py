"""The weekly recalibration as systemd and Kubernetes run it: valid, with a command line that the
program takes, and with the log that the gateway writes."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer

from gateway.cli import app
from gateway.commands.shared import seconds
from tests.deploy.files import DEPLOY, tool
from tests.deploy.test_kubernetes import VERSION, rendered, the

SYSTEMD = DEPLOY / "systemd"
SERVICE, TIMER = SYSTEMD / "forebay-recalibrate.service", SYSTEMD / "forebay-recalibrate.timer"
OVERLAY = "recalibrate"


def value(unit: Path, name: str) -> str:
    (found,) = (
        line.partition("=")[2] for line in unit.read_text().splitlines() if line.startswith(name)
    )
    return found


def taken(arguments: Iterable[str]) -> dict[str, Any]:
    """The options as the program takes them. Raises UsageError for one that it does not know."""
    group = typer.main.get_command(app)
    command = group.commands["recalibrate"]  # type: ignore[attr-defined]
    context = command.make_context("recalibrate", list(arguments))
    parameters: dict[str, Any] = context.params
    return parameters


def job() -> dict[str, Any]:
    spec: dict[str, Any] = the("CronJob", "forebay-recalibrate", OVERLAY)["spec"]
    return spec


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = job()["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def verify(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """With a program that exists here in place of the installed one."""
    for unit in (SERVICE, TIMER):
        (folder / unit.name).write_text(unit.read_text())
    (folder / SERVICE.name).write_text(text.replace("/opt/forebay/bin/forebay", sys.executable))
    units = [str(folder / unit.name) for unit in (SERVICE, TIMER)]
    command = [tool("systemd-analyze", "Debian's systemd"), "verify", "--man=no", *units]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    ended = verify(tmp_path, SERVICE.read_text())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Nicce" in verify(tmp_path, SERVICE.read_text().replace("Nice=", "Nicce=")).stderr


def test_the_timer_is_weekly() -> None:
    command = [tool("systemd-analyze", "Debian's systemd"), "calendar", "--iterations=3"]
    ended = subprocess.run(
        [*command, "--base-time=2026-11-30 00:00:00", value(TIMER, "OnCalendar")],
        env=os.environ | {"TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
    )
    days = re.findall(r"2026-(\d\d-\d\d) 10:00:00 UTC", ended.stdout)
    assert list(dict.fromkeys(days)) == ["12-01", "12-08", "12-15"]


def test_the_service_runs_what_there_is_as_the_gateways_own_user() -> None:
    program, command, *arguments = shlex.split(value(SERVICE, "ExecStart"))
    assert (program, command) == ("/opt/forebay/bin/forebay", "recalibrate")
    options = taken(arguments)
    assert options["apply"] is True
    gateway = SYSTEMD / "forebay.service"
    assert value(SERVICE, "User") == gateway.stem, "DynamicUser= names it after the unit"
    assert value(SERVICE, "StateDirectory") == value(gateway, "StateDirectory")
    assert str(options["log"][0]).startswith("/var/lib/forebay/")
    limit = value(SERVICE, "TimeoutStartSec")
    assert seconds("TimeoutStartSec", limit) > 2 * seconds("--watch", options["watch"])


def test_every_object_is_valid_by_the_apis_schemas() -> None:
    objects = {
        (one["kind"], one["metadata"]["name"]): one
        for one in rendered(OVERLAY)
        if one["kind"] in ("CronJob", "PersistentVolumeClaim", "Deployment")
    }
    assert ("CronJob", "forebay-recalibrate") in objects
    for one in objects.values():
        kubernetes_validate.validate(one, VERSION, strict=True)


def test_a_mistake_would_be_found() -> None:
    wrong = the("CronJob", "forebay-recalibrate", OVERLAY) | {"spec": {**job(), "shedule": "x"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_the_job_reads_what_the_gateways_write() -> None:
    (gateway,) = the("Deployment", "forebay", OVERLAY)["spec"]["template"]["spec"]["containers"]
    (recalibrate,) = pod()["containers"]
    assert recalibrate["image"] == gateway["image"]
    written = next(a.partition("=")[2] for a in gateway["args"] if a.startswith("--request-log"))
    options = taken(recalibrate["args"][1:])
    assert recalibrate["args"][0] == "recalibrate"
    assert Path(written).parent == options["log"][0]
    assert written.endswith("/$(POD_NAME).jsonl"), "one file for each gateway"
    for container in (gateway, recalibrate):
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "requests")
        assert mount["mountPath"] == str(options["log"][0])
    assert {"name": "FOREBAY_REDIS", "value": "redis://redis:6379"} in recalibrate["env"]
    assert "--redis=redis://redis:6379" in gateway["args"]


def test_a_job_is_not_repeated_and_has_the_time_that_it_needs() -> None:
    spec = job()["jobTemplate"]["spec"]
    (container,) = pod()["containers"]
    watch = seconds("--watch", taken(container["args"][1:])["watch"])
    assert spec["backoffLimit"] == 0, "a change that was taken back is not tried again at once"
    assert spec["activeDeadlineSeconds"] > 2 * watch
    assert pod()["restartPolicy"] == "Never"
    assert job()["concurrencyPolicy"] == "Forbid"
