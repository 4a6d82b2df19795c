"""Memory for large bodies, which costs the event loop nothing until it is written to.

A bytearray of 10 MB is zeroed in one go, and one that grows is moved now and then: some
milliseconds each time, most for pages that the process did not have yet. These come one by one as
they are written to, and go back to the system with the last reference.
"""

import mmap


def room(size: int) -> memoryview:
    """So many bytes to be filled."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
