"""The operators' tables are complete: every setting, metric and rejection is in them."""

import ast
import inspect
from pathlib import Path

import pytest
from pydantic import BaseModel

from gateway import config, errors, gauges, metrics
from gateway.control import reference
from scheduler.events import Reason

OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
SECTIONS = {"backends": config.BackendConfig, "classes": config.ClassConfig}


def settings(model: type[BaseModel], path: str = "") -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        section = field.annotation if path else SECTIONS.get(name, field.annotation)
        if isinstance(section, type) and issubclass(section, BaseModel):
            infix = ".<name>" if name == "backends" else ".<class>" if name == "classes" else ""
            names += settings(section, f"{path}{name}{infix}.")
        else:
            names.append(path + name)
    return names


@pytest.mark.parametrize("name", settings(config.Config))
def test_every_setting_is_documented(name: str) -> None:
    assert f"`{name}" in OPERATIONS, f"docs/operations.md lacks the setting {name}"


def literals(module: object) -> set[str]:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    return {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }


METRICS = {n for n in literals(metrics) | literals(gauges) if n.startswith("forebay_")}


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_is_documented(name: str) -> None:
    assert f"`{name}" in OPERATIONS, f"docs/operations.md lacks the metric {name}"


def test_every_metric_that_is_counted_is_documented() -> None:
    for name in metrics.Metrics().names():
        assert f"`{name}" in OPERATIONS


@pytest.mark.parametrize("reason", list(Reason))
def test_every_rejection_is_documented(reason: Reason) -> None:
    code = errors.to_client_error(errors.Rejected(reason, "short", 1.0)).code
    assert f"`{code}`" in OPERATIONS


def test_the_table_of_keys_is_what_is_enforced() -> None:
    """`python -m gateway.control.reference` prints it."""
    table = OPERATIONS.partition("<!-- keys: ")[2].partition("-->\n")[2].partition("<!-- /keys")[0]
    assert table.strip() == reference.markdown()


def test_every_field_of_a_key_says_what_it_does() -> None:
    assert [row for row in reference.rows() if not row.effect] == []
