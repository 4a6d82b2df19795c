"""What operators type, and what is said when it makes no sense."""

from typing import Any

import pytest

from bench.control.invalid import INVALID
from gateway.control import Rejection, overlay
from gateway.control.keys import applies, place, stray
from tests.gateway.control.parts import config


def test_a_key_overrides_only_the_fields_it_has() -> None:
    effective = overlay(
        config(),
        {
            "forebay:class:short": {"max_prompt_tokens": "512", "limit": "8"},
            "forebay:backend:short-0": {"weight": "0", "classes": "short, long"},
            "forebay:burst": {"prompt_tokens": "4096"},
        },
    )
    assert effective.classes["short"].max_prompt_tokens == 512
    assert effective.classes["short"].limit == 8
    assert effective.classes["short"].queue_limit == config().classes["short"].queue_limit
    assert effective.backends["short-0"].weight == 0
    assert effective.backends["short-0"].classes == ("short", "long")
    assert effective.burst.prompt_tokens == 4096


def test_tenants_keys_models_and_canaries_may_be_new() -> None:
    effective = overlay(
        config(),
        {
            "forebay:tenant:acme": {"models": "a/b, c:d", "classes": "long=2", "weight": "2.5"},
            "forebay:key:fb-1": {"tenant": "acme", "sha256": "ab" * 32},
            "forebay:model:Qwen/Qwen3-8B": {"paused": "on"},
            "forebay:canary:m": {"old": "short-0", "new": "short-1", "steps": "0.1,1"},
            "forebay:peak": {"windows": "* 9-17 * * mon-fri; * 10 * * sat"},
        },
    )
    assert effective.tenants["acme"].models == ("a/b", "c:d")
    assert effective.tenants["acme"].classes == {"long": 2}
    assert effective.models["Qwen/Qwen3-8B"].paused
    assert effective.canaries["m"].steps == (0.1, 1.0)
    assert len(effective.peak.windows) == 2


def test_none_takes_a_bound_away() -> None:
    bounded = overlay(config(), {"forebay:class:short": {"limit": "8"}})
    unbounded = overlay(bounded, {"forebay:class:short": {"limit": "none"}})
    assert unbounded.classes["short"].limit is None


@pytest.mark.parametrize(("key", "fields", "words"), INVALID)
def test_what_is_wrong_is_named(key: str, fields: dict[str, str] | None, words: str) -> None:
    with pytest.raises(Rejection) as caught:
        overlay(config(), {key: fields})
    assert words in str(caught.value)
    assert key in caught.value.reasons or "forebay" in caught.value.reasons


def test_there_are_a_hundred_ways_to_be_wrong() -> None:
    assert len({(key, str(fields)) for key, fields, _ in INVALID}) >= 100


def test_classes_must_still_cover_every_prompt() -> None:
    with pytest.raises(Rejection, match="exactly one class"):
        overlay(config(), {"forebay:class:short": {"max_prompt_tokens": "none"}})


def test_two_problems_of_one_key_are_both_named() -> None:
    with pytest.raises(Rejection) as caught:
        overlay(config(), {"forebay:class:short": {"limit": "x", "queue_limit": "y"}})
    reason = caught.value.reasons["forebay:class:short"]
    assert "limit: " in reason
    assert "queue_limit: " in reason


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("forebay:class:shrt", "did you mean short?"),
        ("forebay:backend:gone", "there are: long-0, short-0, short-1"),
        ("forebay:clas:short", "did you mean class?"),
        ("forebay:class", "the key is forebay:class:NAME"),
        ("forebay:burst:all", "the key is forebay:burst"),
        ("forebay:tenant:", "the key is forebay:tenant:NAME"),
    ],
)
def test_a_stray_key_is_told_what_was_meant(key: str, words: str) -> None:
    assert not applies(key, config())
    assert words in stray(key, config())


@pytest.mark.parametrize("key", ["forebay:history", "forebay:registered:a", "other:class:short"])
def test_what_is_not_an_operators_key_is_none(key: str) -> None:
    assert place(key) is None


def test_a_stray_key_changes_nothing() -> None:
    hashes: dict[str, Any] = {"forebay:class:shrt": {"limit": "1"}, "forebay:nothing": {"a": "b"}}
    assert overlay(config(), hashes) == config()
