"""Every way to lose Redis that we could think of, on real servers: the last good settings stay."""

import asyncio
from pathlib import Path

import pytest
from redis import Redis

from bench.demo import free_port
from gateway.control.store import REPLY_TIMEOUT
from tests.gateway.control.parts import Following
from tests.redis_server import redis_server, url_of

pytestmark = pytest.mark.slow


async def test_started_without_redis_it_is_followed_when_it_comes(tmp_path: Path) -> None:
    port = free_port()
    async with Following(f"redis://127.0.0.1:{port}") as following:
        assert following.control.up is False
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "5")
            assert (await following.next()).classes["short"].limit == 5
            await following.up()


async def test_lost_and_back_with_its_data_nothing_happens(tmp_path: Path) -> None:
    port = free_port()
    async with Following(f"redis://127.0.0.1:{port}") as following:
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "5")
            good = await following.next()
            client.save()
        await following.until(lambda: following.control.up is False)
        assert following.control.effective is good
        with redis_server(tmp_path, port) as client:
            await following.up()
            assert client.hget("forebay:version", "number") == "1"
            assert following.told.empty()
            client.hset("forebay:class:short", "limit", "6")
            assert (await following.next()).classes["short"].limit == 6
            assert following.control.version == 2


async def test_a_redis_that_comes_back_empty_gets_the_settings_back(tmp_path: Path) -> None:
    """Else a restart without persistence would throw away every tenant and open the gateway."""
    port = free_port()
    async with Following(f"redis://127.0.0.1:{port}") as following:
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "5")
            client.hset("forebay:tenant:acme", "weight", "2")
            await following.until(
                lambda: following.control.version >= 1 and bool(following.control.effective.tenants)
            )
            good, number = following.control.effective, following.control.version
        await following.until(lambda: following.control.up is False)
        with redis_server(tmp_path, port) as client:
            await following.up()
            assert following.control.effective is good
            assert client.hget("forebay:class:short", "limit") == "5"
            assert client.hget("forebay:tenant:acme", "weight") == "2"
            assert following.control.version == number + 1
            ((_, entry),) = client.xrevrange("forebay:history")
            assert entry["note"].startswith("restored")


async def test_a_flushed_database_gets_them_back_too(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:class:short", "limit", "5")
        await following.next()
        redis.flushall()
        await following.until(lambda: redis.hget("forebay:class:short", "limit") == "5")
        assert following.told.empty()
        assert redis.exists("forebay.file"), "`forebay ctl` validates by it"


async def test_what_was_set_in_the_empty_redis_wins_over_what_is_restored(tmp_path: Path) -> None:
    port = free_port()
    async with Following(f"redis://127.0.0.1:{port}") as following:
        with redis_server(tmp_path, port) as client:
            client.hset("forebay:class:short", "limit", "5")
            client.hset("forebay:burst", "prompt_tokens", "99")
            await following.until(
                lambda: (
                    following.control.effective.burst.prompt_tokens == 99
                    and following.control.effective.classes["short"].limit == 5
                )
            )
        await following.until(lambda: following.control.up is False)
        with redis_server(tmp_path) as hidden:
            hidden.hset("forebay:class:short", "limit", "6")
            hidden.save()
        with redis_server(tmp_path, port) as client:
            await following.until(lambda: following.control.effective.classes["short"].limit == 6)
            assert client.hget("forebay:burst", "prompt_tokens") == "99"


async def test_the_settings_survive_a_restart_of_the_gateway(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "kept" / "settings.json"
    url = f"redis://127.0.0.1:{port}"
    with redis_server(tmp_path, port) as client:
        async with Following(url, file) as following:
            client.hset("forebay:class:short", "limit", "5")
            await following.next()
            await following.until(file.exists)
    async with Following(url, file) as following:
        assert (await following.next()).classes["short"].limit == 5
        assert following.control.version == 1
        assert following.control.up is False
    assert file.stat().st_mode & 0o077 == 0


async def test_a_snapshot_of_another_redis_or_none_at_all_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    for content in ("", "not json", "[]", '{"redis": "other", "version": 1}', '{"redis": 1}'):
        file.write_text(content)
        async with Following(f"redis://127.0.0.1:{free_port()}", file) as following:
            await asyncio.sleep(0)
            assert following.told.empty()


async def test_a_fail_over_is_followed_to_the_new_primary(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with redis_server(tmp_path / "b") as second, redis_server(tmp_path / "a") as first:
        port = first.connection_pool.connection_kwargs["port"]
        second.replicaof("127.0.0.1", str(port))
        async with Following(f"{url_of(second)},{url_of(first)}") as following:
            await following.up()
            first.hset("forebay:class:short", "limit", "5")
            good = await following.next()
            first.wait(1, 5000)
            first.shutdown(nosave=True)
            second.replicaof("NO", "ONE")
            await following.until(lambda: following.control.up is False)
            await following.up()
            assert following.control.effective is good
            second.hset("forebay:class:short", "limit", "6")
            assert (await following.next()).classes["short"].limit == 6
            assert following.control.version == 2


async def test_a_primary_that_becomes_a_replica_is_left(tmp_path: Path) -> None:
    """It goes on answering reads, but what operators set is elsewhere now."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with redis_server(tmp_path / "a") as first, redis_server(tmp_path / "b") as second:
        async with Following(f"{url_of(first)},{url_of(second)}") as following:
            await following.up()
            port = second.connection_pool.connection_kwargs["port"]
            first.replicaof("127.0.0.1", str(port))
            second.hset("forebay:class:short", "limit", "6")
            assert (await following.next()).classes["short"].limit == 6


async def test_a_redis_that_is_too_slow_is_a_lost_one(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        await following.up()
        redis.hset("forebay:class:short", "limit", "5")
        good = await following.next()
        slow = Redis(port=redis.connection_pool.connection_kwargs["port"])
        sleeping = asyncio.to_thread(slow.execute_command, "DEBUG", "SLEEP", REPLY_TIMEOUT * 5)
        task = following.tasks.spawn("sleeping", sleeping)
        await following.until(lambda: following.control.up is False)
        assert following.control.effective is good
        await task
        slow.close()
        redis.hset("forebay:class:short", "limit", "6")
        assert (await following.next()).classes["short"].limit == 6


async def test_a_key_of_the_wrong_type_is_reported_once(redis: Redis) -> None:
    async with Following(url_of(redis)) as following:
        redis.set("forebay:burst", "a string")
        assert "not a hash" in (await following.next())["forebay:burst"]
        redis.hset("forebay:class:short", "limit", "3")
        redis.delete("forebay:burst")
        seen = [await following.next(), await following.next()]
        assert seen[0].classes["short"].limit == 3
        assert seen[1] == {}


async def test_our_own_keys_of_the_wrong_type_cost_versions_but_no_settings(redis: Redis) -> None:
    for key in ("forebay:version", "forebay:history", "forebay:rejected"):
        redis.set(key, "a string")
    async with Following(url_of(redis)) as following:
        redis.hset("forebay:class:short", "limit", "3")
        assert (await following.next()).classes["short"].limit == 3
