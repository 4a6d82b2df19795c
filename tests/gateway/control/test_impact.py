"""What a dry run says of the traffic of the moment."""

from typing import Any

import pytest

from gateway.control import overlay
from gateway.control.impact import impact
from tests.gateway.control.parts import config

TRAFFIC = {
    "backends": {"short-0": {"in_flight": 12}, "long-0": {"in_flight": 3}},
    "pools": {"short": {"queued": 40, "in_flight": 12}, "long": {"queued": 0, "in_flight": 3}},
}
KEY = {"tenant": "acme", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"backend:short-0": {"limit": "8"}}, "12 in flight: nothing new until 4 of them have"),
        ({"backend:short-0": {"limit": "20"}}, "12 in flight: it has room still"),
        ({"backend:short-0": {"limit": "80"}}, "room for 16 more requests at once"),
        (
            {"backend:short-0": {"weight": "0"}},
            "its 12 requests in flight go on; new ones go to short-1",
        ),
        (
            {"backend:long-0": {"drain": "on"}},
            "its 3 requests in flight finish; no other backend serves its classes",
        ),
        ({"backend:short-0": {"classes": "long"}}, "serves long from now on"),
        ({"class:short": {"limit": "10"}}, "12 in flight, limit 10: nothing new until they end"),
        ({"class:short": {"queue_limit": "30"}}, "40 wait already: one more that must wait"),
        ({"class:short": {"max_prompt_tokens": "9"}}, "40 waiting are sorted anew"),
        ({"key:k": KEY}, "without an API key are refused with 401"),
        ({"tenant:acme": {"concurrent": "5"}}, "more than 5 concurrent gets 429"),
        ({"model:m": {"paused": "on"}}, "new requests are refused with 503"),
        ({"burst": {"window": "2"}}, "nothing that requests now waiting or in flight would notice"),
    ],
)
def test_what_clients_could_notice(changes: dict[str, Any], sentence: str) -> None:
    hashes = {f"forebay:{key}": fields for key, fields in changes.items()}
    told = impact(config(), overlay(config(), hashes), TRAFFIC)
    assert any(sentence in line for line in told), told


def test_the_way_back_is_told_too() -> None:
    drained = config(keys={"k": KEY, "l": KEY | {"sha256": "1" * 64}})
    before = overlay(drained, {"forebay:backend:short-0": {"drain": "on"}})
    told = impact(before, drained, TRAFFIC)
    assert told == ["backend short-0: takes requests again, once it is proved and warm"]
    assert impact(drained, config(), TRAFFIC) == [
        "nobody needs an API key any more: the gateway is open"
    ]
    one = config(keys={"k": KEY})
    assert impact(drained, one, TRAFFIC) == ["tenant acme: 1 of its 2 keys still works"]
