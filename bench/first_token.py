"""The time to first token of one small request, for measurements that send few.

Not a load: that is `bench.load`.
"""

from itertools import count
from time import monotonic

import orjson

from backends.client import Client
from backends.types import Timeouts

PATH = "/v1/chat/completions"
PATIENT = Timeouts(connect=10, first_token=300, token_gap=300, total=600)
_WORDS = ("water", "river", "stone", "light", "field", "house", "glass", "paper")
_NUMBERS = count()


class RequestFailed(Exception):
    """The server did not answer as it should; the message says how it did."""


class _Body:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, /) -> None:
        self.data += data


async def first_token(client: Client, model: str, words: int) -> float:
    """Seconds from the call to the first byte of the streamed answer, connecting included.

    Every prompt begins differently, so that no prefix cache answers. Raises RequestFailed and
    BackendError.
    """
    loop_of_words = [_WORDS[at % len(_WORDS)] for at in range(words)]
    text = " ".join((f"{id(client)} {next(_NUMBERS)}", *loop_of_words))
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 2,
        "ignore_eos": True,
        "stream": True,
    }
    began = monotonic()
    stream = await client.open(PATH, orjson.dumps(body), timeouts=PATIENT)
    came = _Body()
    await stream.relay(came)
    if stream.status != 200:
        raise RequestFailed(f"status {stream.status}: {came.data[:300]!r}")
    return stream.first_byte_at - began
