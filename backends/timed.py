"""Timing one request of our own: what a channel costs a server is found out with it.

Not here: what is sent, and what follows from the times.
"""

from backends.client import Client
from backends.errors import NotServing
from backends.types import Timeouts


async def time_to_first_token(client: Client, path: str, body: bytes, *, within: float) -> float:
    """Seconds from the sent request to the first byte of its answer, which is read to its end.

    Raises BackendError, and NotServing for any status but 200.
    """
    limits = Timeouts(first_token=within, token_gap=within, total=within)
    stream = await client.open(path, body, timeouts=limits)
    await stream.relay(_Nowhere())
    if stream.status != 200:
        raise NotServing(client.spec.name, f"{path} answered {stream.status}")
    return stream.first_byte_at - stream.connected_at


class _Nowhere:
    """A sink for what nobody reads."""

    def write(self, data: bytes, /) -> None:
        pass
