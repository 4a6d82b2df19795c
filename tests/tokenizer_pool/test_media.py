"""Which unparsed bodies seem to bear media: found wherever it says so, and not in what is said."""

import asyncio

import pytest

from tokenizer_pool.media import may_have_media

STEP = 256 * 1024
PART = b'{"type": "image_url", "image_url": {"url": "http://x/y.png"}}'


@pytest.mark.parametrize("kind", [b"image_url", b"input_audio", b"video_url", b"media_type"])
async def test_a_medium_is_found_wherever_a_step_ends(kind: bytes) -> None:
    mark = b'"%b"' % kind
    for before in range(STEP - len(mark) - 1, STEP + 2):
        assert await may_have_media(b"x" * before + mark + b"y" * 10)


async def test_a_medium_is_found_in_the_middle_of_a_long_body() -> None:
    assert await may_have_media(b"x" * 2 * STEP + PART + b"x" * 2 * STEP)


@pytest.mark.parametrize("text", [rb"\"image_url\"", b'"image"', b"image_url", b'"text"'])
async def test_what_is_said_of_media_is_none(text: bytes) -> None:
    assert not await may_have_media(text * 1000)


async def test_others_have_their_turns_while_a_long_body_is_looked_at() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(others())
        assert not await may_have_media(b"x" * 10 * STEP)
        running.cancel()
    assert turns >= 9
