"""Keeps what all gateways must agree on about their canaries in Redis.

    forebay.canary:<model>          how far it is: written only by whoever saw what it builds on,
                                    and kept for ever: one that has ended must not begin again
    forebay.canary:<model>:<step>   what all gateways saw at that step, added field by field

Any gateway may take the next step: the state is compared and set in one script, so two that come
to it at once take one step. While Redis is away a canary stays where it is, and what was seen is
added later.
"""

from dataclasses import asdict

import orjson
from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis

from gateway.canary.progress import Progress
from gateway.canary.sketch import Group, group_of
from gateway.canary.verdict import reference

KEEP = 14 * 86_400
_PROGRESS = TypeAdapter(Progress)
_SWAP = """
local now = redis.call('GET', KEYS[1])
if (now or '') ~= ARGV[1] then return now end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
"""


def key_of(model: str) -> str:
    return f"forebay.canary:{model}"


async def read(redis: Redis, model: str) -> Progress | None:
    """How far the canary is; what is not ours at its key is removed. Earlier versions of Forebay
    let the key expire."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.get(key_of(model))
        pipe.persist(key_of(model))
        text, _ = await pipe.execute()
    progress = decode(text)
    if text and progress is None:
        await redis.delete(key_of(model))
    return progress


async def swap(redis: Redis, model: str, before: Progress | None, after: Progress) -> Progress:
    """Set the state if it is still `before`; returns what it is then."""
    args = [_encode(before) if before is not None else "", _encode(after)]
    now = await redis.register_script(_SWAP)(keys=[key_of(model)], args=args)
    return decode(now) or after


async def add(redis: Redis, model: str, progress: Progress, fields: dict[str, int]) -> None:
    """Add what was seen at this step to what all gateways saw."""
    async with redis.pipeline(transaction=True) as pipe:
        for key in (_step(model, progress, progress.step), _run(model, progress)):
            for name, count in fields.items():
                pipe.hincrby(key, name, count)
            pipe.expire(key, KEEP)
        await pipe.execute()


async def groups(redis: Redis, model: str, progress: Progress) -> tuple[Group, Group]:
    """What all gateways saw: the old group as a reference, the new one at this step."""
    step = await redis.hgetall(_step(model, progress, progress.step))
    run = await redis.hgetall(_run(model, progress))
    old = reference(group_of("old", _text(step)), group_of("old", _text(run)))
    return old, group_of("new", _text(step))


def _encode(progress: Progress) -> str:
    document = asdict(progress) | {"phase": progress.phase.value}
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def decode(text: str | bytes | None) -> Progress | None:
    """None for nothing, and for what is not ours."""
    try:
        return None if not text else _PROGRESS.validate_json(text)
    except ValidationError:
        return None


def _step(model: str, progress: Progress, step: int) -> str:
    return f"{key_of(model)}:{progress.started:.3f}:{step}"


def _run(model: str, progress: Progress) -> str:
    return f"{key_of(model)}:{progress.started:.3f}:run"


def _text(fields: object) -> dict[str, str]:
    return fields if isinstance(fields, dict) else {}
