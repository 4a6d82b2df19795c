"""`forebay ctl` and `forebay keys` on a real Redis, without a gateway that runs."""

import asyncio
import re
from collections.abc import Callable

import pytest
from click.testing import Result
from redis import Redis
from typer import Typer
from typer.testing import CliRunner

from gateway.commands.ctl import ctl
from gateway.commands.keys import keys
from gateway.config import Config
from gateway.control import published
from gateway.control.store import connect
from gateway.tenancy.keys import KeyRing, sha256
from tests.gateway.control.parts import config
from tests.redis_server import url_of

Run = Callable[..., Result]


def publish(redis: Redis, file: Config) -> None:
    async def work() -> None:
        client = connect(url_of(redis))
        await published.publish(client, file)
        await client.aclose()

    asyncio.run(work())


@pytest.fixture
def run(redis: Redis) -> Run:
    """Runs a command; the file configuration of a gateway stands in Redis."""

    publish(redis, config())

    def command(app: Typer, *args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, args, env={"FOREBAY_REDIS": url_of(redis)})
        assert result.exit_code == code, result.output
        return result

    return command


def test_set_makes_a_version_that_get_history_and_diff_show(run: Run, redis: Redis) -> None:
    result = run(
        ctl, "set", "class:short", "limit=8", "queue_limit=5", "--as", "ann", "--note", "x"
    )
    assert "forebay:class:short limit: as in the file → 8" in result.output
    assert result.output.endswith("version 1\n")
    assert redis.hgetall("forebay:class:short") == {"limit": "8", "queue_limit": "5"}
    assert "limit = 8    (redis)" in run(ctl, "get", "class:short").output
    assert "max_prompt_tokens = 1024    (file or default)" in run(ctl, "get", "class:short").output
    assert re.search(r"version 1  \S+  by ann \(x\)\n.*limit", run(ctl, "history").output)
    run(ctl, "set", "class:short", "limit=9")
    assert run(ctl, "diff", "1", "2").output == "forebay:class:short limit: 8 → 9\n"
    assert "limit: as in the file → 9" in run(ctl, "diff").output


def test_rollback_has_an_earlier_state_again_as_a_new_version(run: Run, redis: Redis) -> None:
    run(ctl, "set", "class:short", "limit=8")
    run(ctl, "set", "class:short", "limit=")
    run(ctl, "set", "tenant:acme", "weight=2", "priority=1")
    assert not redis.exists("forebay:class:short")
    result = run(ctl, "rollback", "1")
    assert result.output.endswith("version 4\n")
    assert redis.hgetall("forebay:class:short") == {"limit": "8"}
    assert not redis.exists("forebay:tenant:acme")
    assert "back to version 1" in run(ctl, "history", "--count", "1").output
    assert "does not reach back to version 99" in run(ctl, "rollback", "99", code=1).output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("class:short", "limit=many"), "limit: Input should be a valid integer"),
        (("class:shrt", "limit=1"), "did you mean short?"),
        (("class:short", "limt=1"), "did you mean limit?"),
        (("class:short", "limit"), "write FIELD=VALUE"),
        (("clas:short", "limit=1"), "did you mean class?"),
        (("class:short", "limit=1", "--version", "7"), "the last version is 0, not 7"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    run: Run, redis: Redis, args: tuple[str, ...], words: str
) -> None:
    assert words in run(ctl, "set", *args, code=1).output
    assert not redis.exists("forebay:class:short", "forebay:version")


def test_a_dry_run_says_what_it_would_do_and_does_nothing(run: Run, redis: Redis) -> None:
    output = run(
        ctl,
        "set",
        "backend:short-0",
        "weight=0",
        "limit=4",
        "--dry-run",
        "--gateway",
        "http://127.0.0.1:9",
    ).output
    assert (
        "would: backend short-0: its 0 requests in flight go on; new ones go to short-1" in output
    )
    assert "limit 64 → 4" in output
    assert output.endswith("nothing was changed\n")
    assert not redis.exists("forebay:backend:short-0", "forebay:version")


def test_drain_and_undrain_are_a_field_of_the_backend(run: Run, redis: Redis) -> None:
    run(ctl, "drain", "long-0")
    assert redis.hgetall("forebay:backend:long-0") == {"drain": "on"}
    run(ctl, "undrain", "long-0")
    assert not redis.exists("forebay:backend:long-0")


def test_explain_has_the_schema_and_the_present_value(run: Run) -> None:
    output = run(ctl, "explain", "backend:long-0").output
    assert "limit: its requests in flight, over all gateways that share it" in output
    assert "whole number, ≥ 1, ≤ 1,000,000; default 64" in output
    assert "limit = 64    (file or default)" in output
    assert "there are no keys forebay:nope" in run(ctl, "explain", "nope:x", code=1).output


def test_a_key_is_shown_once_works_and_can_be_revoked(run: Run, redis: Redis) -> None:
    result = run(keys, "create", "acme", "--note", "ci", "--days", "30")
    secret = result.stdout.splitlines()[-1]
    assert "it is the first key" in result.stderr
    (stored,) = redis.keys("forebay:key:*")
    name = stored.removeprefix("forebay:key:")
    assert secret.startswith(name)
    assert redis.hget(stored, "sha256") == sha256(secret).hex()
    assert secret not in str(redis.hgetall(stored)) + run(ctl, "history").output
    listed = run(keys, "list").output
    assert f"{name}  tenant acme" in listed
    assert "expires 20" in listed
    run(keys, "revoke", name)
    assert run(keys, "list").output == ""
    assert "there is no key" in run(keys, "revoke", name, code=1).output


def test_a_change_that_somebody_typed_wrong_is_cleaned_up_by_a_rollback(
    run: Run, redis: Redis
) -> None:
    run(ctl, "set", "class:short", "limit=8")
    redis.hset("forebay:class:short", "limit", "eight")
    assert "limit: Input should be" in run(ctl, "set", "burst", "window=2", code=1).output
    run(ctl, "rollback", "1")
    assert redis.hget("forebay:class:short", "limit") == "8"


def test_what_is_not_utf8_is_refused_by_name_and_ctl_repairs_it(run: Run, redis: Redis) -> None:
    run(ctl, "set", "tenant:acme", "weight=2")
    raw = {"tenant": "acme", "sha256": "0" * 64, "note": b"f\xfcr"}
    redis.hset("forebay:key:k1", mapping=raw)
    refused = run(ctl, "set", "burst", "window=2", code=1).output
    assert "forebay:key:k1: note: is not UTF-8" in refused
    run(ctl, "set", "key:k1", "note=ok")
    assert redis.hget("forebay:key:k1", "note") == "ok"
    redis.hset("forebay:burst", b"\xfc", "1")
    redis.hset("forebay:burst", "\U0001f600", "1")  # before the other as bytes, not as text
    redis.hset(b"forebay:tenant:f\xfcr", "weight", "1")
    refused = run(ctl, "set", "burst", "window=2", code=1).output
    assert "field's name is not UTF-8" in refused
    assert "key's name is not UTF-8" in refused
    run(ctl, "rollback", "1")
    assert redis.hgetall("forebay:burst") == {}
    assert redis.exists(b"forebay:tenant:f\xfcr") == 0


def test_watch_prints_what_comes(run: Run, redis: Redis) -> None:
    redis.hset("forebay:rejected", "forebay:class:short", "limit: nonsense")
    assert (
        "refused: forebay:class:short: limit: nonsense"
        in run(ctl, "watch", "--seconds", "1").output
    )


def test_an_unused_or_absent_redis_is_told_in_one_sentence(redis: Redis) -> None:
    for url, words in ((url_of(redis), "no gateway has used"), ("redis://127.0.0.1:1", "redis: ")):
        result = CliRunner().invoke(ctl, ["get", "--redis", url])
        assert result.exit_code == 1
        assert result.output.startswith(f"forebay: {words}"), result.output


def test_an_authentic_key_of_another_making_works_too() -> None:
    ring = KeyRing(
        config(keys={"old": {"tenant": "acme", "sha256": sha256("sk-their-own").hex()}}).keys
    )
    from datetime import UTC, datetime

    found = ring.identify("sk-their-own", datetime.now(UTC))
    assert found is not None
    assert (found.tenant, found.key) == ("acme", "old")


def test_a_canary_is_begun_looked_at_and_ordered_about(run: Run, redis: Redis) -> None:
    groups = ("--old", "short-0", "--new", "short-1")
    run(ctl, "canary", "start", "m", *groups, "--set", "steps=0.1,1", "--set", "step_time=5")
    first = redis.hgetall("forebay:canary:m")
    assert (first["old"], first["steps"], first["order"]) == ("short-0", "0.1,1", "run")
    assert "no gateway has taken it up" in run(ctl, "canary", "status", "m").output
    for order in ("pause", "abort", "promote"):
        run(ctl, "canary", order, "m")
        assert redis.hget("forebay:canary:m", "order") == order
    run(ctl, "canary", "resume", "m")
    assert redis.hget("forebay:canary:m", "order") == "run"
    assert (
        "do not exist: x"
        in run(ctl, "canary", "start", "m", "--old", "x", "--new", "short-1", code=1).output
    )
    assert "there is no canary" in run(ctl, "canary", "abort", "other", code=1).output


def test_the_state_of_a_canary_is_told(run: Run, redis: Redis) -> None:
    run(ctl, "canary", "start", "m", "--old", "short-0", "--new", "short-1", "--set", "run=one")
    redis.set(
        "forebay.canary:m",
        '{"run": "one", "phase": "running", "step": 1, "started": 5.0, "since": 6.0, '
        '"reason": "not worse", "looks": {"count": 0, "ended": 0}}',
    )
    redis.hset("forebay.canary:m:5.000:1", mapping={"new|answers": 7, "new|short|100": 7})
    output = run(ctl, "canary", "status", "m").output
    assert "running: 5% to short-1" in output
    assert "new: 7 requests ended, 0 of them failed" in output
    assert "short: TTFT p50 0.005 s" in output
    assert "waits for: 193 more requests at the new group" in output
