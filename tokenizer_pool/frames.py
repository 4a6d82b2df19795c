"""How pool and worker talk: a frame is a list of byte strings, length-prefixed, never pickled.

A frame is `<u32 n><u32 length>*n<bytes>*n`, little-endian. Part 0 is a small JSON object with the
meaning, the others are payloads (bodies, ready JSON) that neither side looks into.
"""

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import cast

from tokenizer_pool.memory import room

_MAX_PARTS = 8
_WORD = 4
_STEP = 256 * 1024


def pack(parts: Sequence[bytes]) -> bytes:
    """One frame, ready to send."""
    return b"".join(pieces(parts))


def pieces(parts: Sequence[bytes]) -> list[bytes]:
    """One frame, to be sent in pieces: a large body need not be copied for it."""
    return [struct.pack(f"<I{len(parts)}I", len(parts), *map(len, parts)), *parts]


def _check(count: int) -> int:
    if not 0 < count <= _MAX_PARTS:
        raise ConnectionError(f"a frame of {count} parts is not ours")
    return count


async def read(reader: asyncio.StreamReader) -> list[bytes]:
    """The next frame; IncompleteReadError when the other side is gone."""
    (count,) = struct.unpack("<I", await reader.readexactly(_WORD))
    lengths = struct.unpack(f"<{_check(count)}I", await reader.readexactly(count * _WORD))
    return [await _payload(reader, length) for length in lengths]


async def _payload(reader: asyncio.StreamReader, length: int) -> bytes:
    """In small steps where it is large: taken at once, 10 MB cost the loop some milliseconds."""
    if length <= _STEP:
        return await reader.readexactly(length)
    whole, at = room(length), 0
    while at < length:
        piece = await reader.read(min(_STEP, length - at))
        if not piece:
            raise asyncio.IncompleteReadError(bytes(whole[:at]), length)
        whole[at : at + len(piece)] = piece
        at += len(piece)
    return cast("bytes", whole)  # nobody changes it: not worth a copy


def _receive(sock: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        got = sock.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(buffer)


def receive(sock: socket.socket) -> list[bytes]:
    """The next frame from a blocking socket; EOFError when the other side is gone."""
    (count,) = struct.unpack("<I", _receive(sock, _WORD))
    lengths = struct.unpack(f"<{_check(count)}I", _receive(sock, count * _WORD))
    return [_receive(sock, length) for length in lengths]
