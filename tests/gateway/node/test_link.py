"""The link: every message arrives, in order, however the socket cuts the bytes."""

import asyncio
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.node.link import Link, Message

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.lists(st.tuples(st.text(min_size=1, max_size=8), VALUES), min_size=1, max_size=8)


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)


@given(MESSAGES, st.data())
def test_messages_survive_any_cut(messages: list[tuple[str, Any]], data: st.DataObject) -> None:
    async def carried() -> list[Message]:
        arrived: list[Message] = []
        sender, receiver = Link(print, print), Link(arrived.append, print)
        wire = Wire()
        sender.connection_made(wire)
        for message in messages:
            sender.send(*message)
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        left = wire.written
        while left:
            cut = data.draw(st.integers(1, len(left)))
            receiver.data_received(left[:cut])
            left = left[cut:]
        return arrived

    assert asyncio.run(carried()) == [list(message) for message in messages]


async def test_both_ends_hear_that_the_other_is_gone_after_its_last_word() -> None:
    loop = asyncio.get_running_loop()
    heard: list[Message] = []
    gone = asyncio.Event()
    ends = [Link(heard.append, gone.set), Link(heard.append, asyncio.Event().set)]
    for link, end in zip(ends, socket.socketpair(), strict=True):
        await loop.create_connection(lambda link=link: link, sock=end)  # type: ignore[misc]
    ends[1].send("last", 1)
    ends[1].close()
    await asyncio.wait_for(gone.wait(), 5)
    assert heard == [["last", 1]]
    ends[0].send("into the void")
    ends[0].close()
