"""Many requests at once against servers that misbehave at random: each ends once, nothing leaks."""

import asyncio
import os
from collections import Counter
from random import Random

from backends.errors import BackendError
from backends.types import Timeouts
from tests.backends.clients import CHUNKED, client_of, sized
from tests.backends.scripted import Collector, Peer

TIMEOUTS = Timeouts(connect=5, first_token=0.3, token_gap=0.3, total=5)
WHOLE = b"".join(b"5\r\n%05d\r\n" % number for number in range(20))


class Misbehaving:
    """Serves a connection's requests in a way drawn for each."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.ways = Counter[str]()

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            way = self._rng.choice(["sized", "chunked", "chunked", *WAYS])
            self.ways[way] += 1
            if way == "sized":
                await peer.say(sized(b"x" * 100))
            elif way == "chunked":
                await peer.say(CHUNKED, WHOLE[:77], WHOLE[77:], b"0\r\n\r\n")
            else:
                await WAYS[way](peer)
                return


async def _hang(peer: Peer) -> None:
    await peer.until_gone()


async def _hang_after_the_first_token(peer: Peer) -> None:
    await peer.say(CHUNKED + WHOLE[:50])
    await peer.until_gone()


async def _reset(peer: Peer) -> None:
    await peer.reset()


async def _reset_midway(peer: Peer) -> None:
    await peer.say(CHUNKED + WHOLE[:50])
    await peer.reset()


async def _close_midway(peer: Peer) -> None:
    await peer.say(CHUNKED + WHOLE[:53])


async def _garbage(peer: Peer) -> None:
    await peer.say(b"\x00\x01 this is not HTTP")
    await peer.until_gone()


WAYS = {
    way.__name__: way
    for way in (_hang, _hang_after_the_first_token, _reset, _reset_midway, _close_midway, _garbage)
}


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_every_request_of_a_storm_ends_once_and_leaves_nothing() -> None:
    server = Misbehaving(Random(11))
    rng = Random(12)
    ends = Counter[str]()
    async with client_of(_reset) as (client, _):  # what the loop itself opens at its first use
        await asyncio.gather(client.open("/", b"", timeouts=TIMEOUTS), return_exceptions=True)
    descriptors, tasks = _descriptors(), len(asyncio.all_tasks())
    async with client_of(server) as (client, _):

        async def one() -> None:
            sink = Collector()
            try:
                async with asyncio.timeout(rng.choice([0.01, 0.05, 60, 60, 60])):
                    stream = await client.open("/", b"{}", timeouts=TIMEOUTS)
                    await stream.relay(sink)
            except BackendError as error:
                ends[type(error).__name__] += 1
            except TimeoutError:
                ends["client left"] += 1
            else:
                assert len(sink.data) == 100
                ends["whole"] += 1

        async def caller() -> None:
            for _ in range(12):
                await one()

        async with asyncio.TaskGroup() as group:
            for _ in range(32):
                group.create_task(caller())
        assert client.in_flight == 0
        assert sum(ends.values()) == 32 * 12
    assert set(server.ways) == {"sized", "chunked", *WAYS}, "the storm must show every way"
    assert set(ends) == {
        "whole",
        "client left",
        "FirstTokenTimeout",
        "TokenGapTimeout",
        "StreamBroken",
        "BadResponse",
    }
    assert (_descriptors(), len(asyncio.all_tasks())) == (descriptors, tasks)
