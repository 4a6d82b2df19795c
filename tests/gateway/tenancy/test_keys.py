"""API keys: who is who, and who is nobody."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.tenancy.config import KeyConfig
from gateway.tenancy.keys import ANYONE, KeyRing, new_key, sha256

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def test_a_new_key_is_recognised_and_only_it() -> None:
    keys = {key.name: (key, tenant) for key, tenant in ((new_key(), "a"), (new_key(), "b"))}
    ring = KeyRing({n: KeyConfig(tenant=t, sha256=k.sha256) for n, (k, t) in keys.items()})
    for name, (key, tenant) in keys.items():
        found = ring.identify(key.secret, NOW)
        assert found is not None
        assert (found.key, found.tenant) == (name, tenant)
        assert ring.identify(key.secret[:-1], NOW) is None
        assert ring.identify(key.name, NOW) is None
    assert ring.identify("", NOW) is None
    assert ring.identify(None, NOW) is None


def test_without_keys_everyone_is_anyone() -> None:
    assert KeyRing({}).identify(None, NOW) is ANYONE
    assert KeyRing({}).identify("sk-whatever", NOW) is ANYONE


@pytest.mark.parametrize(("after", "valid"), [(-1, True), (0, False), (1, False)])
def test_a_key_expires(after: int, valid: bool) -> None:
    key = new_key()
    entry = KeyConfig(tenant="a", sha256=key.sha256, expires=NOW)
    found = KeyRing({"k": entry}).identify(key.secret, NOW + timedelta(seconds=after))
    assert (found is not None) is valid


def test_two_keys_that_share_the_index_are_told_apart() -> None:
    """The look-up is by a part of the hash; the whole decides."""
    digest = sha256("right").hex()
    wrong = digest[:16] + ("0" if digest[16] != "0" else "1") + digest[17:]
    ring = KeyRing(
        {"x": KeyConfig(tenant="x", sha256=wrong), "y": KeyConfig(tenant="y", sha256=digest)}
    )
    found = ring.identify("right", NOW)
    assert found is not None
    assert found.tenant == "y"
