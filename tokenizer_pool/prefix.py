"""Hashes of a prompt's beginnings, by which a router finds the backend that has them cached.

One number for each block of tokens, each over everything from the start to the block's end: two
prompts share a hash exactly as far as they begin alike (up to collisions, which cost a cache miss
and nothing else). Which backend has what is not known here.
"""

from typing import Final

import numpy
from numpy.typing import NDArray

BLOCK: Final = 128
MAX_BLOCKS: Final = 64
# A fixed odd weight for each position, so that all processes agree.
_WEIGHTS: Final = numpy.random.default_rng(0x46).integers(
    1, 2**63, size=BLOCK * MAX_BLOCKS, dtype=numpy.uint64
) | numpy.uint64(1)
_KEEP: Final = numpy.uint64(2**53 - 1)


def prefix_hashes(ids: NDArray[numpy.uint32]) -> tuple[int, ...]:
    """A hash for each full block of 128 tokens, of the first 64 blocks at most.

    The hash of a prefix is the sum of (id + 1) times a fixed random weight of its position,
    modulo 2**64, with the halves folded to 53 bits: a multilinear hash (Carter and Wegman 1979),
    summed for all prefixes at once. No Python code runs for a token.
    """
    blocks = min(len(ids) // BLOCK, MAX_BLOCKS)
    if not blocks:
        return ()
    size = blocks * BLOCK
    products = (ids[:size].astype(numpy.uint64) + numpy.uint64(1)) * _WEIGHTS[:size]
    sums = numpy.add.reduceat(products, numpy.arange(0, size, BLOCK)).cumsum(dtype=numpy.uint64)
    return tuple(((sums ^ (sums >> numpy.uint64(32))) & _KEEP).tolist())
