"""What the pool's tests send, and how they look at processes."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def chat(content: str = "hello", model: str | None = "m", **fields: Any) -> bytes:
    document = {"messages": [{"role": "user", "content": content}], **fields}
    if model is not None:
        document["model"] = model
    return json.dumps(document).encode()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - processes send no events
            await asyncio.sleep(0.01)


def running(pid: int | str) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    # Nobody may be there to reap it.
    return "State:\tZ" not in status


def sockets(pid: int) -> int:
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return sum(link.startswith("socket:") for link in links)


LONG = chat("many words upstream of the turbines " * 1000)
