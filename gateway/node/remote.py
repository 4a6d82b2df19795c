"""The brain as a relay process sees it: the other end of the link.

Requests are admitted through it (`gate.Admitter`), it is told of failures, and it says what only
the brain knows (`routes.About`).
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from backends.errors import BackendError, to_wire
from gateway.gate import Answer, Report
from gateway.listeners import Listeners
from gateway.node.messages import answer_from_wire, report_to_wire, ticket_to_wire
from scheduler.model import Ticket


class RemoteBrain:
    """`send` puts a message on the link; `answered` and `told` are for what comes back."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._listeners = Listeners()
        self._questions: dict[int, asyncio.Future[tuple[bool, str]]] = {}
        self._numbers = itertools.count(1)

    # gate.Admitter

    def submit(self, ticket: Ticket, answer: Callable[[Answer], None]) -> None:
        self._listeners.add(ticket.id, answer)
        self._send("submit", *ticket_to_wire(ticket))

    def report(self, event: Report) -> None:
        self._listeners.reported(event)
        self._send("report", *report_to_wire(event))

    def answered(self, *values: Any) -> None:
        """The brain's answer to a ticket."""
        self._listeners.tell(answer_from_wire(values))

    # what it is told

    def report_failure(self, name: str, error: BackendError) -> None:
        self._send("failure", name, *to_wire(error))

    def distrust(self, backend: str, model: str, reason: str) -> None:
        self._send("distrust", backend, model, reason)

    # routes.About

    async def models(self) -> bytes:
        return (await self._ask("models"))[1]

    async def ready(self) -> tuple[bool, bytes]:
        return await self._ask("ready")

    async def metrics(self) -> bytes:
        return (await self._ask("metrics"))[1]

    def told(self, number: int, yes: bool, body: str) -> None:
        """The brain's answer to a question."""
        question = self._questions.get(number)
        if question is not None and not question.done():
            question.set_result((yes, body))

    async def _ask(self, what: str) -> tuple[bool, bytes]:
        number = next(self._numbers)
        question = asyncio.get_running_loop().create_future()
        self._questions[number] = question
        try:
            self._send("ask", number, what)
            yes, body = await question
        finally:
            del self._questions[number]
        return yes, body.encode()
