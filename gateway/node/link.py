"""Messages over a socket: what is sent in one turn of the loop travels as one frame.

A frame is `<u32 length><JSON array of messages>`, little-endian; a message is an array whose first
element names it. What the messages mean is not known here.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson

Message = Sequence[Any]

_HEAD = struct.Struct("<I")
_LARGEST = 256 << 20


class Link(asyncio.Protocol):
    """One end. `receive` gets each message in order, `lost` is called once at the end."""

    def __init__(self, receive: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._leaving: list[Message] = []
        self._arriving = bytearray()

    def send(self, *message: Any) -> None:
        """Send soon; into the void once the other end is gone."""
        if not self._leaving:
            self._loop.call_soon(self._flush)
        self._leaving.append(message)

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost()

    def data_received(self, data: bytes) -> None:
        arriving = self._arriving
        arriving += data
        while len(arriving) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(arriving)
            if length > _LARGEST:
                raise ConnectionError(f"a frame of {length} bytes is not ours")
            end = _HEAD.size + length
            if len(arriving) < end:
                return
            messages = orjson.loads(arriving[_HEAD.size : end])
            del arriving[:end]
            for message in messages:
                self._receive(message)

    def _flush(self) -> None:
        leaving, self._leaving = self._leaving, []
        if leaving and self._transport is not None:
            frame = orjson.dumps(leaving)
            self._transport.write(_HEAD.pack(len(frame)) + frame)
