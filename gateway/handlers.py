"""The story of a request: read, prepare, admit, relay, record."""

import asyncio
import itertools
import logging
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from backends.client import Client
from backends.errors import BackendError
from backends.stream import Stream
from backends.types import Timeouts
from gateway.directory import Directory
from gateway.errors import (
    ClientError,
    EngineBusy,
    context_length_exceeded,
    model_not_known_yet,
    to_client_error,
)
from gateway.exchange import Exchange
from gateway.gate import Gate
from gateway.http_types import Request
from gateway.record import Outcome, RequestRecord
from gateway.pace import Pace
from gateway.relay import Relay
from gateway.retry import RetryBudget
from gateway.story import Story
from gateway.tracing.context import TRACEPARENT
from gateway.watchdog import Watchdog, filter_of
from scheduler.model import Ticket
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind, TokenizedPrompt

if TYPE_CHECKING:  # the SDK is imported only where requests are traced
    from gateway.tracing.export import Tracing

log = logging.getLogger("forebay.request")

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_FORWARDED = [(name, name.encode()) for name in ("authorization", "traceparent", "tracestate")]
_SECONDS = re.compile(rb"\d{1,5}(\.\d{1,6})?")
PATHS = {Kind.CHAT: "/v1/chat/completions", Kind.COMPLETION: "/v1/completions"}


class Upstream(Protocol):
    """The clients of the backends, and who wants to know of their failures."""

    def client(self, name: str) -> Client: ...

    def report_failure(self, name: str, error: BackendError) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What shaping a request needs; wired by the composition root. `name` begins ticket ids."""

    pool: TokenizerPool
    gate: Gate
    upstream: Upstream
    directory: Directory
    retries: RetryBudget
    timeouts: Timeouts
    watchdog: Watchdog
    observe: Callable[[RequestRecord], None]
    paced: Callable[[str, str, Pace], None]
    tracing: "Tracing | None"
    retried: Callable[[], None]
    expose_timings: bool
    name: str


@dataclass(slots=True)
class Call:
    """One request being served. Nobody changes it; frozen, it would cost more to make."""

    exchange: Exchange
    kind: Kind
    prompt: TokenizedPrompt
    story: Story
    relay: Relay


class Handlers:
    """Answers the shaped endpoints."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._numbers = itertools.count(1)
        self._ids = _unique_ids()

    async def shape(self, exchange: Exchange, kind: Kind) -> None:
        """Serve one request, whatever becomes of it, and record how it ended."""
        request = exchange.request
        request_id = _given_id(request) or next(self._ids)
        story = Story(request_id, request.path, request.arrived, request.received)
        if self._parts.tracing is not None:
            story.trace = self._parts.tracing.begin(request)
        relay = Relay(exchange)
        try:
            prompt = await self._prepare(exchange, kind, story)
            await self._serve(Call(exchange, kind, prompt, story, relay))
        except asyncio.CancelledError:
            if exchange.gone:
                story.abandoned()
            else:
                _fail(relay, story, _stopped())
                story.outcome = Outcome.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001 - the handler's edge
            _fail(relay, story, error)
        finally:
            record = story.record(monotonic())
            self._parts.observe(record)
            if self._parts.tracing is not None and story.trace is not None:
                self._parts.tracing.ended(story.trace, record)

    async def _prepare(self, exchange: Exchange, kind: Kind, story: Story) -> TokenizedPrompt:
        ids, text = self._parts.directory.forms(kind)
        wanted = self._parts.watchdog.wanted(ids=ids, text=text)
        try:
            prompt = await self._parts.pool.prepare(kind, exchange.request.body, wanted=wanted)
        except InvalidRequest as error:
            unexplored = self._parts.directory.unexplored()
            if error.code == "model_not_found" and unexplored:
                raise model_not_known_yet(unexplored) from error
            raise
        story.tokenized(prompt, monotonic())
        limit = self._parts.directory.context_length(prompt.model)
        # As vLLM does: a prompt must leave room for one token; max_tokens is clipped to the rest.
        if limit is not None and prompt.exact and prompt.prompt_tokens >= limit:
            raise context_length_exceeded(prompt.prompt_tokens, limit)
        return prompt

    async def _serve(self, call: Call) -> None:
        """Try backends until one begins to answer; after that there is no second try."""
        self._parts.retries.deposit()
        avoid: frozenset[str] = frozenset()
        while True:
            try:
                await self._attempt(call, avoid)
            except (BackendError, EngineBusy) as error:
                if isinstance(error, BackendError):
                    self._parts.upstream.report_failure(error.backend, error)
                avoid |= {error.backend}
                if call.exchange.started or not self._may_retry(call.prompt.model, avoid):
                    raise
                self._parts.retried()
            else:
                return

    def _may_retry(self, model: str, avoid: frozenset[str]) -> bool:
        """Only where another backend is ready, and only within the budget."""
        ready = self._parts.directory.ready_for(model)
        return not ready <= avoid and self._parts.retries.withdraw()

    async def _attempt(self, call: Call, avoid: frozenset[str]) -> None:
        """Hold one permit for one stream, from dispatch to whatever ends the stream."""
        story, prompt = call.story, call.prompt
        ticket = Ticket(
            id=f"{self._parts.name}{next(self._numbers)}",
            model=prompt.model,
            prompt_tokens=prompt.prompt_tokens,
            max_tokens=prompt.max_tokens or 0,
            avoid=avoid,
            prefix=prompt.prefix,
            answer_by=_answer_by(call.exchange.request),
            body_bytes=len(call.exchange.request.body),
        )
        with await self._parts.gate.admit(ticket, call.exchange.task) as permit:
            story.dispatched(permit, monotonic())
            stream = await self._open(call, permit.backend)
            story.answered(stream.status, stream.connected_at, stream.first_byte_at)
            if prompt.stream:  # a whole answer's first byte tells nothing of the prefill
                permit.first_token()
            watched = story.channel == "ids" and story.status == 200
            seen = filter_of(prompt) if watched else None
            await call.relay.run(stream, self._headers(story), seen)
            if prompt.stream and story.status == 200:
                self._parts.paced(prompt.model, story.service_class, call.relay.pace)
        if watched:
            self._parts.watchdog.check(permit.backend, prompt, seen, call.relay.tail)

    async def _open(self, call: Call, backend: str) -> Stream:
        """The backend's answer, up to its first byte, to the body in the channel it was proved
        to understand."""
        prompt = call.prompt
        ids = self._parts.directory.takes_ids(backend, call.kind, prompt)
        call.story.channel = "ids" if ids and prompt.ids else "text"
        body = prompt.body(ids=ids)
        if not body:  # no backend took text when it was prepared
            again = await self._parts.pool.prepare(call.kind, call.exchange.request.body)
            body = again.text
        stream = await self._parts.upstream.client(backend).open(
            PATHS[call.kind],
            body,
            timeouts=self._parts.timeouts,
            headers=_forwarded(call),
        )
        if stream.status == 503:
            stream.abort()
            raise EngineBusy(backend)
        return stream

    def _headers(self, story: Story) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", story.request_id.encode())]
        if self._parts.expose_timings:
            stages = story.stages().items()
            timing = ", ".join(f"{name};dur={seconds * 1e3:.3f}" for name, seconds in stages)
            headers += [
                (b"x-forebay-class", story.service_class.encode()),
                (b"x-forebay-backend", story.backend.encode()),
                (b"x-forebay-channel", story.channel.encode()),
                (b"x-forebay-prompt-tokens", b"%d" % story.prompt_tokens),
                (b"server-timing", timing.encode()),
            ]
        return headers


def _fail(relay: Relay, story: Story, error: BaseException) -> None:
    """Tell the client and the story. What is not a known error is a bug, and logged as one."""
    told = to_client_error(error)
    story.failed(error, told.status)
    if told.code == "internal_error":
        log.error("request %s failed", story.request_id, exc_info=error)
    relay.fail(told, story.request_id)


def _given_id(request: Request) -> str | None:
    """The client's own id where it is fit to be a header and a log field."""
    given = request.headers.get(b"x-request-id")
    return given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else None


def _unique_ids() -> Iterator[str]:
    """Ids that no other process makes: it asks for randomness once, not once a request."""
    start = secrets.token_hex(8)
    return (f"{start}{number:016x}" for number in itertools.count())


def _answer_by(request: Request) -> float | None:
    """When a client that says how long it waits, in seconds, needs its first token by."""
    given = request.headers.get(b"x-request-timeout")
    if given is None or not _SECONDS.fullmatch(given):
        return None
    return request.arrived + float(given)


def _forwarded(call: Call) -> list[tuple[str, str]]:
    """What goes to the backend besides the body: who asks, and whose trace it is."""
    headers = [("x-request-id", call.story.request_id)]
    received = call.exchange.request.headers
    trace = call.story.trace
    for name, raw in _FORWARDED:
        if raw == TRACEPARENT and trace is not None:
            headers.append((name, trace.header()))
        elif raw in received:
            headers.append((name, received[raw].decode("latin-1")))
    return headers


def _stopped() -> ClientError:
    message = "this gateway is shutting down; send the request again"
    return ClientError(503, message, code="draining", retry_after=1.0)
