"""What may be configured, and what is said when it may not."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config import Config, parse_backends, read_file
from gateway.settings import backend_specs, scheduler_settings


def config(**changes: Any) -> Config:
    return Config.model_validate({"backends": {"a": {"url": "http://h:1"}}} | changes)


def test_backends_on_the_command_line_are_named_by_class_and_number() -> None:
    options = ["short=http://a:1", "http://b:2", "short=http://c:3", "long=http://d:4"]
    backends = parse_backends(options)
    assert {name: (b["url"], b["classes"]) for name, b in backends.items()} == {
        "short-0": ("http://a:1", ["short"]),
        "backend-0": ("http://b:2", []),
        "short-1": ("http://c:3", ["short"]),
        "long-0": ("http://d:4", ["long"]),
    }


def test_the_defaults_make_a_short_and_a_long_class() -> None:
    settings = scheduler_settings(config())
    bounds = {spec.name: spec.max_prompt_tokens for spec in settings.classes}
    assert bounds == {"short": 1024, "long": None}
    assert settings.burst.prompt_tokens == 2048


def test_a_trailing_slash_of_a_url_is_no_part_of_it() -> None:
    specs = backend_specs(config(backends={"a": {"url": "http://h:1/"}}))
    assert specs[0].url == "http://h:1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backends": {}}, "give --backend URL"),
        ({"backends": {"a": {"url": "h:1"}}}, "should match pattern"),
        ({"backends": {"a": {"url": "http://h:1/v1"}}}, "should match pattern"),
        ({"backends": {"A b": {"url": "http://h:1"}}}, "should match pattern"),
        ({"backends": {"a": {"url": "http://h:1", "classes": ["huge"]}}}, "do not exist"),
        ({"classes": {"short": {"max_prompt_tokens": 10}}}, "exactly one class"),
        ({"classes": {"a": {}, "b": {}}}, "exactly one class"),
        (
            {"classes": {"a": {"max_prompt_tokens": 9}, "b": {"max_prompt_tokens": 9}, "c": {}}},
            "the same max_prompt_tokens",
        ),
        ({"surprise": 1}, "Extra inputs"),
        ({"timeouts": {"connect": 0}}, "greater than 0"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**changes)


@pytest.mark.parametrize("text", ["- a list", "a: [unclosed", "\x00"])
def test_a_file_that_holds_no_settings_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=str(file)):
        read_file(file)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.yaml"):
        read_file(tmp_path / "nowhere.yaml")
