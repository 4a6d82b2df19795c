"""Hashes of a prompt's beginnings, by which a router finds the backend that has them cached.

One number for each block of tokens, each over everything from the start to the block's end: two
prompts share a hash exactly as far as they begin alike (up to collisions, which cost a cache miss
and nothing else). Which backend has what is not known here.
"""

from typing import Final
from zlib import adler32

import numpy

from tokenizer_pool.engines import Ids

BLOCK: Final = 256
MAX_BLOCKS: Final = 128
_BYTES: Final = 4 * BLOCK
_MAX_ID: Final = 2**32 - 1


def prefix_hashes(ids: Ids) -> tuple[int, ...]:
    """A 32-bit hash for each full block of 256 tokens, of the first 128 blocks at most.

    Each is the Adler-32 of all ids up to the block's end: the same in every process, a hundred
    times cheaper than the encoding, and two beginnings that differ never become equal again by
    going on alike.
    """
    if len(ids) < BLOCK:
        return ()
    data = ids.data.cast("B")
    value = 1
    hashes = []
    for start in range(0, min(len(ids) // BLOCK, MAX_BLOCKS) * _BYTES, _BYTES):
        value = adler32(data[start : start + _BYTES], value)
        hashes.append(value)
    return tuple(hashes)


def prefix_hashes_of(ids: list[int]) -> tuple[int, ...]:
    """The same for a client's own ids; none when one of them is no token of any vocabulary."""
    if max(ids, default=0) > _MAX_ID:
        return ()
    return prefix_hashes(numpy.array(ids, dtype=numpy.uint32))
