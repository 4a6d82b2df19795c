"""Whole requests through this process's own way, for nobody, before the first user's comes.

Code that has not run yet, a tokenizer's first prompt, the first messages to the brain: all of that
is slower once, and no user shall pay for it. A rehearsal shares what is to be warm: the tokenizers,
the connections, the link to the brain. It has handlers, records, a directory and a scheduler of
its own (`Brain.understudy`), so that nothing of it is in users' metrics, log, quotas or ledger.
Not here: when there is one (`catalogue`), and warming the engine (`backends.warm`).
"""

import asyncio
import logging
import re
import socket
from dataclasses import replace
from typing import Any, Final

import orjson

from backends.types import OwnTraffic
from gateway.config import Config
from gateway.connection import Connection
from gateway.directory import Directory, Row
from gateway.front import Front, Neighbours
from gateway.metrics import Metrics
from gateway.server import HttpServer
from gateway.tasks import Tasks
from gateway.tracing.config import TracingConfig

log = logging.getLogger("forebay.rehearsal")

MARK: Final = "~"
"""Begins the ids of a rehearsal's tickets."""

WITHIN: Final = 1.0
"""Seconds for a rehearsal. A backend whose rehearsal was not through by then is ready all the
same."""

CHATS: Final = 8
"""The interpreter specialises a function once it has run eight times."""

_WORDS: Final = 64
_NOT_OFFERED: Final = frozenset((403, 404, 405, 501))
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3})")
_PROMPT_TOKENS: Final = re.compile(rb"x-forebay-prompt-tokens: (\d+)")


async def rehearse(
    config: Config, tasks: Tasks, around: Neighbours, backend: tuple[str, Row]
) -> OwnTraffic:
    """One wave of small requests for each base model of a backend; what it cost. `around.admitter`
    has an understudy for tickets with the mark."""
    name, row = backend
    front = _stage(config, tasks, around, backend)
    spent = OwnTraffic(0, 0)
    try:
        async with asyncio.timeout(WITHIN):
            for model in (each for each in row.models if each.parent is None):
                words = min(_WORDS, (model.max_model_len or 4 * _WORDS) // 4)
                asked = [_ask(front.server, *each) for each in _requests(model.name, words)]
                answers = await asyncio.gather(*asked)
                tokens = sum(_number(_PROMPT_TOKENS, answer) for answer in answers)
                spent = OwnTraffic(spent.requests + len(answers), spent.prompt_tokens + tokens)
                _judge(name, model.name, {_number(_STATUS, answer) for answer in answers})
    except (TimeoutError, OSError) as error:
        log.warning("backend %s: rehearsal ended by %s", name, type(error).__name__)
    finally:
        await front.server.drain(0.0)
    return spent


def _stage(config: Config, tasks: Tasks, around: Neighbours, backend: tuple[str, Row]) -> Front:
    """A front that nobody can reach, and that is forgotten afterwards."""
    own: dict[str, Any] = {
        "keys": {},
        "request_log": None,
        "tracing": TracingConfig(),
        "expose_timings": True,
    }
    directory = Directory()
    directory.put(backend[0], replace(backend[1], ready=True))
    neighbours = replace(around, directory=directory, name=f"{MARK}{around.name}")
    return Front(config.model_copy(update=own), tasks, Metrics(), neighbours)


def _requests(model: str, words: int) -> list[tuple[str, bytes]]:
    """Paths and bodies: most of the way is the same for all endpoints."""
    texts = [" ".join((f"rehearsal {number}", *["water"] * words)) for number in range(CHATS + 3)]
    chats: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": _said(text), "max_tokens": 1})
        for text in texts[:CHATS]
    ]
    completion, message, response = texts[CHATS:]
    others = [
        ("/v1/completions", {"prompt": completion, "max_tokens": 1}),
        ("/v1/messages", {"messages": _said(message), "max_tokens": 1}),
        ("/v1/responses", {"input": response, "max_output_tokens": 1, "store": False}),
    ]
    always = {"model": model, "stream": True}
    return [(path, orjson.dumps(always | own)) for path, own in (*chats, *others)]


def _said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def _ask(server: HttpServer, path: str, body: bytes) -> bytes:
    """The whole answer, over a connection as clients have them."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: Connection(server), ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    try:
        head = f"POST {path} HTTP/1.1\r\nhost: rehearsal\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        return await reader.read()
    finally:
        writer.close()


def _judge(backend: str, model: str, statuses: set[int]) -> None:
    failed = statuses - _NOT_OFFERED - {200}
    if failed:
        log.warning("backend %s, %s: rehearsal answered %s", backend, model, sorted(failed))


def _number(pattern: re.Pattern[bytes], answer: bytes) -> int:
    found = pattern.search(answer)
    return int(found[1]) if found else 0
