"""The file configuration of a gateway, published in Redis without its secrets, so that `forebay
ctl` can validate a change as the gateway will."""

from typing import Any

import orjson
from redis.asyncio import Redis

from gateway.config import Config

KEY = "forebay.file"
_SECRETS = frozenset(("api_key", "redis"))


async def publish(redis: Redis, config: Config) -> None:
    await redis.set(KEY, orjson.dumps(_open(config.model_dump(mode="json"))))


async def publish_again(redis: Redis, config: Config) -> None:
    """A Redis that was emptied has lost it. What another gateway has put there stays."""
    if not await redis.exists(KEY):
        await publish(redis, config)


async def published(redis: Redis) -> Config | None:
    """None when no gateway has used this Redis yet."""
    text = await redis.get(KEY)
    return None if text is None else Config.model_validate(orjson.loads(text))


def _open(value: Any) -> Any:
    """The value without what nobody but the gateway should read."""
    if isinstance(value, dict):
        return {name: _open(inner) for name, inner in value.items() if name not in _SECRETS}
    if isinstance(value, list):
        return [_open(inner) for inner in value]
    if isinstance(value, str) and "@" in value and "://" in value:
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
    return value
