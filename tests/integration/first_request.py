"""A program for a test: a gateway gets ready, and is looked at before and after its first request.

python -m tests.integration.first_request CACHE_DIR ENGINE_URL
"""

import asyncio
import dis
import sys
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from gateway.gate import Gate
from gateway.handlers import Handlers
from gateway.relay import Relay
from scheduler.core import Scheduler
from tests.integration.parts import MODEL, running_gateway
from tokenizer_pool.pool import TokenizerPool

ON_THE_WAY = (Handlers.shape, TokenizerPool.prepare, Gate.admit, Scheduler.handle, Relay.run)


def unspecialised() -> list[str]:
    """The functions that the interpreter has not run often enough to have made them quicker."""
    return [one.__qualname__ for one in ON_THE_WAY if not _is_specialised(one)]


def _is_specialised(function: Any) -> bool:
    plain = [each.opname for each in dis.get_instructions(function)]
    return plain != [each.opname for each in dis.get_instructions(function, adaptive=True)]


async def main(cache_dir: Path, engine: str) -> None:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    async with (
        running_gateway(cache_dir, backends={"only": {"url": engine}}) as gateway,
        aiohttp.ClientSession() as http,
    ):
        async with http.get(f"{gateway.url}/health"):
            pass
        found = {"unspecialised": unspecialised()}
        before = set(sys.modules)
        async with http.post(f"{gateway.url}/v1/chat/completions", json=body) as answer:
            await answer.read()
            assert answer.status == 200
        found["imported"] = sorted(set(sys.modules) - before)
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
