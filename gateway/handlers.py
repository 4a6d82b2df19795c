"""The story of a request: read, prepare, admit, relay, record."""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from backends.client import Client
from backends.errors import BackendError
from backends.lifecycle import FAILED_STATUSES
from backends.stream import Stream
from backends.types import Timeouts
from gateway.api import held
from gateway.api.endpoints import Endpoint, Means
from gateway.api.media import MediaCosts
from gateway.api.preparing import Prepared, Preparing
from gateway.api.waiting import Comments, interval_of
from gateway.canary.mirror import mirror, ticket_for
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
from gateway.pace import Pace
from gateway.record import Outcome, RequestRecord
from gateway.relay import Relay
from gateway.request_ids import RequestIds
from gateway.retry import RetryBudget
from gateway.story import Story
from gateway.tenancy.access import Access
from gateway.tenancy.allowance import Allowance
from gateway.tenancy.keys import Identity
from gateway.tenancy.usage import answer_tokens
from gateway.tracing.context import TRACEPARENT
from gateway.watchdog import Watchdog, filter_of
from scheduler.model import Ticket
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.pool import TokenizerPool
from tokenizer_pool.types import Kind

if TYPE_CHECKING:  # the SDK is imported only where requests are traced
    from gateway.tracing.export import Tracing

log = logging.getLogger("forebay.request")

_FORWARDED = [
    (name, name.encode()) for name in ("authorization", "traceparent", "tracestate", "x-session-id")
]
_SECONDS = re.compile(rb"\d{1,5}(\.\d{1,6})?")
PATHS = {Kind.CHAT: "/v1/chat/completions", Kind.COMPLETION: "/v1/completions"}
_PROMPT_FIELD = {Kind.COMPLETION: "prompt", Kind.RESPONSES: "input"}
_NOBODY: frozenset[str] = frozenset()


Spawn = Callable[[str, Coroutine[Any, Any, None]], object]


class Upstream(Protocol):
    """The clients of the backends, and who wants to know of their failures."""

    def client(self, name: str) -> Client: ...

    def report_failure(self, name: str, error: BackendError) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What shaping a request needs; wired by the composition root. `name` begins ticket ids."""

    pool: TokenizerPool
    preparing: Preparing
    costs: MediaCosts
    gate: Gate
    access: Access
    upstream: Upstream
    directory: Directory
    retries: RetryBudget
    timeouts: Timeouts
    watchdog: Watchdog
    observe: Callable[[RequestRecord], None]
    paced: Callable[[str, str, Pace], None]
    tracing: "Tracing | None"
    retried: Callable[[], None]
    counted: Callable[[str, str], None]
    comment_interval: float | None
    expose_timings: bool
    spawn: Spawn
    name: str


@dataclass(slots=True)
class Call:
    """One request being served. Nobody changes it; frozen, it would cost more to make."""

    exchange: Exchange
    endpoint: Endpoint
    prepared: Prepared
    story: Story
    relay: Relay
    identity: Identity
    comments: Comments | None = None

    @property
    def target(self) -> str:
        """What is asked of the backend: the row's path, or the client's where that has a name."""
        request = self.exchange.request
        if self.endpoint.means is not Means.HELD:
            return self.endpoint.path
        return f"{request.path}?{request.query}" if request.query else request.path


class Handlers:
    """Answers the shaped endpoints."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._numbers = itertools.count(1)
        self._ids = RequestIds()

    async def shape(self, exchange: Exchange, endpoint: Endpoint, name: str = "") -> None:
        """Serve one request, whatever becomes of it, and record how it ended. `name` is what its
        path names."""
        request = exchange.request
        request_id = self._ids.of(request)
        story = Story(request_id, request.path, request.arrived, request.received)
        if self._parts.tracing is not None:
            story.trace = self._parts.tracing.begin(request)
        relay = Relay(exchange)
        try:
            identity = self._parts.access.identify(request)
            story.tenant, story.api_key = identity.tenant, identity.key
            prepared = await self._prepare(request, endpoint, name, story)
            await self._serve(Call(exchange, endpoint, prepared, story, relay, identity))
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

    async def _prepare(
        self, request: Request, endpoint: Endpoint, name: str, story: Story
    ) -> Prepared:
        ids, text = self._parts.directory.forms(endpoint.kind)
        wanted = self._parts.watchdog.wanted(ids=ids, text=text)
        try:
            prepared = await self._parts.preparing.prepare(request, endpoint, name, wanted)
        except InvalidRequest as error:
            unexplored = self._parts.directory.unexplored()
            if error.code == "model_not_found" and unexplored:
                raise model_not_known_yet(unexplored) from error
            raise
        prompt = prepared.prompt
        story.tokenized(prompt, monotonic())
        self._parts.counted(endpoint.path, "exact" if prompt.exact else "estimated")
        limit = self._parts.directory.context_length(prompt.model)
        longest = prompt.longest or prompt.prompt_tokens
        # As vLLM does: a prompt must leave room for one token; max_tokens is clipped to the rest.
        if limit is not None and longest >= limit and prompt.exact and endpoint.generates:
            param = _PROMPT_FIELD.get(endpoint.kind, "messages")
            raise context_length_exceeded(longest, limit, param)
        return prepared

    async def _serve(self, call: Call) -> None:
        """Try backends until one begins to answer; after that there is no second try."""
        self._parts.retries.deposit()
        only = call.prepared.only
        avoid = frozenset(self._parts.directory.rows) - {only} if only else _NOBODY
        self._keep_open(call)
        while True:
            try:
                await self._attempt(call, avoid)
            except (BackendError, EngineBusy) as error:
                if isinstance(error, BackendError):
                    self._parts.upstream.report_failure(error.backend, error)
                avoid |= {error.backend}
                model = call.prepared.prompt.model
                if call.relay.begun or not self._may_retry(model, avoid):
                    raise
                self._parts.retried()
            else:
                return
            finally:
                if call.comments is not None:
                    call.comments.end()

    def _keep_open(self, call: Call) -> None:
        """Comment a stream that waits, if its client or the operator wants that."""
        request = call.exchange.request
        interval = interval_of(request, self._parts.comment_interval)
        if interval is not None and call.prepared.prompt.stream and call.endpoint.generates:
            comment = partial(call.relay.comment, request_id=call.story.request_id)
            call.comments = Comments(interval, comment)

    def _may_retry(self, model: str, avoid: frozenset[str]) -> bool:
        """Only where another backend is ready, and only within the budget."""
        ready = self._parts.directory.ready_for(model)
        return not ready <= avoid and self._parts.retries.withdraw()

    async def _attempt(self, call: Call, avoid: frozenset[str]) -> None:
        """Hold one permit for one stream, from dispatch to whatever ends the stream."""
        story, prompt = call.story, call.prepared.prompt
        if call.comments is not None:
            call.comments.begin()
        ticket = Ticket(
            id=f"{self._parts.name}{next(self._numbers)}",
            model=prompt.model,
            prompt_tokens=prompt.prompt_tokens,
            max_tokens=prompt.max_tokens or 0,
            tenant=call.identity.tenant,
            session=_session(call.exchange.request),
            avoid=avoid,
            prefix=prompt.prefix,
            answer_by=_answer_by(call.exchange.request),
            body_bytes=len(call.exchange.request.body),
        )
        with await self._parts.gate.admit(ticket, call.exchange.task) as permit:
            story.dispatched(permit, monotonic())
            if permit.mirror is not None:
                self._mirror(call, ticket_for(ticket, permit.mirror.avoid))
            stream = await self._open(call, permit.backend)
            story.answered(stream.status, stream.connected_at, stream.first_byte_at)
            if prompt.stream:  # a whole answer's first byte tells nothing of the prefill
                permit.first_token()
            watched = story.channel == "ids" and story.status == 200
            seen = filter_of(prompt) if watched else None
            if call.comments is not None:
                call.comments.end()
            if stream.status in FAILED_STATUSES:
                permit.failed()
            await call.relay.run(stream, self._headers(story, permit.allowance), seen)
            if prompt.stream and story.status == 200:
                self._parts.paced(prompt.model, story.service_class, call.relay.pace)
                story.output_tokens = max(0, call.relay.pace.events - 1)
            counted = bool(call.identity.tenant) or prompt.stream
            if counted and (tokens := answer_tokens(seen, call.relay.tail)):
                permit.answered(tokens)
                story.output_tokens = tokens
        if watched:
            self._parts.watchdog.check(permit.backend, prompt, seen, call.relay.tail)
        if prompt.media and story.status == 200:
            text = prompt.prompt_tokens - call.prepared.guessed
            self._parts.costs.learn(prompt.model, prompt.media, text, call.relay.tail)

    def _mirror(self, call: Call, ticket: Ticket) -> None:
        """Send the request once more, for nobody."""
        if call.endpoint.generates:
            story = call.story
            unread = Story(f"{story.request_id}-mirror", story.path, story.arrived, story.received)
            opening = partial(self._open, replace(call, story=unread))
            streams = call.prepared.prompt.stream
            copy = mirror(self._parts.gate, ticket, opening, streams=streams)
            self._parts.spawn(f"mirror-{ticket.id}", copy)

    async def _open(self, call: Call, backend: str) -> Stream:
        """The backend's answer, up to its first byte, to the body in the channel it was proved
        to understand."""
        prompt, kind = call.prepared.prompt, call.endpoint.kind
        ids = bool(prompt.ids) and self._parts.directory.takes_ids(backend, kind, prompt)
        call.story.channel = "ids" if ids else "text"
        body = prompt.body(ids=ids)
        if not body and prompt.ids:  # no backend took text when it was prepared
            again = await self._parts.pool.prepare(kind, call.exchange.request.body)
            body = again.text
        if kind is Kind.RESPONSES:
            body = held.with_id(body, backend, self._parts.directory)
        stream = await self._parts.upstream.client(backend).open(
            call.target,
            body,
            timeouts=self._parts.timeouts,
            headers=_forwarded(call, own_key=self._parts.access.is_open),
            method=call.endpoint.method,
            content_type=call.prepared.content_type,
        )
        if stream.status == 503:
            stream.abort()
            raise EngineBusy(backend)
        return stream

    def _headers(self, story: Story, allowance: Allowance | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", story.request_id.encode())]
        if allowance is not None:
            headers += allowance.headers()
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
    story.failed(error, told.status, told.code)
    if told.code == "internal_error":
        log.error("request %s failed", story.request_id, exc_info=error)
    relay.fail(told, story.request_id)


def _answer_by(request: Request) -> float | None:
    """When a client that says how long it waits, in seconds, needs its first token by."""
    given = request.headers.get(b"x-request-timeout")
    if given is None or not _SECONDS.fullmatch(given):
        return None
    return request.arrived + float(given)


def _session(request: Request) -> str:
    """What the client calls its conversation, for what should stay together."""
    return (request.header(b"x-session-id") or "")[:128]


def _forwarded(call: Call, *, own_key: bool) -> list[tuple[str, str]]:
    """What goes to the backend besides the body: who asks, in which conversation and trace. A key
    of ours (not `own_key`) stays here."""
    headers = [("x-request-id", call.story.request_id)]
    received = call.exchange.request.headers
    trace = call.story.trace
    for name, raw in _FORWARDED:
        if raw == TRACEPARENT and trace is not None:
            headers.append((name, trace.header()))
        elif raw in received and (own_key or name != "authorization"):
            headers.append((name, received[raw].decode("latin-1")))
    return headers


def _stopped() -> ClientError:
    message = "this gateway is shutting down; send the request again"
    return ClientError(503, message, code="draining", retry_after=1.0)
