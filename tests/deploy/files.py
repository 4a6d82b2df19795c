"""The files under test, read as their tools read them."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def tool(name: str, package: str, *, in_debian: bool = True) -> str:
    """A program's path; the test is skipped where it is not installed, but never in CI if Debian
    has it."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        asked = in_debian and os.environ.get("FOREBAY_ALL_TOOLS")
        assert not asked, f"this machine lacks {name} ({package})"
        pytest.skip(f"{name} is not installed ({package})")
    return found


def compose(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """docker-compose.yml with its variables filled in and its merges done."""
    given = environment or {}
    text = (ROOT / "docker-compose.yml").read_text()
    text = _VARIABLE.sub(lambda m: given.get(m[1]) or m[2] or "", text)
    document: dict[str, Any] = yaml.safe_load(text)
    return {name: value for name, value in document.items() if not name.startswith("x-")}


def services(profile: str) -> dict[str, dict[str, Any]]:
    """The services of one profile."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return {n: s for n, s in found.items() if profile in s.get("profiles", [profile])}


def instructions() -> Iterator[tuple[str, str]]:
    """The Dockerfile's instructions, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            yield name, value.strip()


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (DEPLOY / "grafana/dashboards/forebay.json").read_text()
    )
    return document


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard with the title of its panel, Grafana's variables filled in."""
    document = dashboard()
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], _filled(target["expr"])
    for annotation in document["annotations"]["list"]:
        yield f"annotation {annotation['name']}", _filled(annotation["expr"])


def _filled(query: str) -> str:
    for variable, value in (("$__rate_interval", "30s"), ("$__interval", "15s")):
        query = query.replace(variable, value)
    query = query.replace("$instance", ".*")
    assert "$" not in query
    return query
