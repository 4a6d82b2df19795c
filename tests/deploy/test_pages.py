"""What the documentation names exists: settings, metrics, files."""

import re
from pathlib import Path

import pytest

from gateway.config import Config
from gateway.ui.settings import shown
from tests.deploy.files import DEPLOY, ROOT

PAGES = ("troubleshooting.md", "migration.md", "kubernetes.md")
SECTIONS = set(Config.model_fields)


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def settings() -> set[str]:
    """Every setting by its dotted name, of a configuration that has one of everything."""
    config = Config.model_validate({"backends": {"b": {"url": "http://b"}}})
    return {re.sub(r"\.(b|short|long)\.", ".<name>.", name) for name in shown(config)}


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_is_named_exists(page: str) -> None:
    named = {
        name
        for name in re.findall(r"`([a-z_]+\.[a-z_]+)[^`]*`", text(page))
        if name.partition(".")[0] in SECTIONS
    }
    assert named <= settings()


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_is_named_is_in_the_table(page: str) -> None:
    table = text("operations.md")
    for name in re.findall(r"`(forebay_[a-z_]+)", text(page)):
        assert f"`{name}" in table, name


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_path_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", text(page)):
        assert target.startswith("http") or (ROOT / "docs" / target).exists(), target
    for path in re.findall(r"(?<!port-forward )deploy/[\w./-]+", text(page)):
        assert Path(ROOT, path).exists(), path


def test_the_pictures_are_there() -> None:
    names = {path.name for path in (ROOT / "docs/images").iterdir()}
    assert {"live-page-light.png", "live-page-dark.png", "live-page-phone.png"} <= names
    assert DEPLOY.exists()
