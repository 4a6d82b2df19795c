"""What serves requests, put together: HTTP server, tokenizer pool, handlers, records.

One process has one of these, and a node as many as it has relay processes. What it needs to be
told and decided by others is in `Neighbours`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.api.local import About, Local
from gateway.api.media import MediaCosts
from gateway.api.preparing import Preparing
from gateway.config import Config
from gateway.directory import Directory
from gateway.gate import Admitter, Gate
from gateway.handlers import Handlers, Parts, Upstream
from gateway.log import RequestLog
from gateway.metrics import Metrics
from gateway.record import RequestRecord
from gateway.retry import RetryBudget
from gateway.routes import Routes
from gateway.server import HttpServer
from gateway.settings import http_limits, media_limits, stream_timeouts, watch
from gateway.stalls import watch as watch_stalls
from gateway.tasks import Tasks
from gateway.tenancy.access import Access
from gateway.tls import server_context
from gateway.tokenization import Tokenization
from gateway.watchdog import Watchdog
from tokenizer_pool.pool import TokenizerPool

if TYPE_CHECKING:
    from gateway.tracing.export import Tracing


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tokenizers, brain and backends, as far as serving requests needs them.

    `name` begins every ticket's id: two fronts of one brain must have different ones.
    """

    pool: TokenizerPool
    admitter: Admitter
    directory: Directory
    upstream: Upstream
    about: About
    distrust: Callable[[str, str, str], None]
    name: str = ""


class Front:
    """One listening address with all that answers there."""

    def __init__(self, config: Config, tasks: Tasks, metrics: Metrics, around: Neighbours) -> None:
        self._config = config
        self._pool = around.pool
        self._metrics = metrics
        self._tasks = tasks
        self._request_log = _request_log(config)
        self._tracing = _tracing(config)
        self.access = Access(config.keys)
        around.pool.call(config.aliases)
        costs = MediaCosts()
        parts = Parts(
            pool=around.pool,
            preparing=Preparing(
                around.pool,
                around.directory,
                config.aliases,
                costs=costs,
                limits=media_limits(config),
            ),
            costs=costs,
            gate=Gate(around.admitter),
            access=self.access,
            upstream=around.upstream,
            directory=around.directory,
            retries=RetryBudget(config.retry_share),
            timeouts=stream_timeouts(config),
            watchdog=Watchdog(watch(config), around.distrust, metrics.parity_differs),
            observe=self._observe,
            paced=metrics.paced,
            tracing=self._tracing,
            retried=metrics.retries.inc,
            counted=metrics.prompts_counted.inc,
            comment_interval=config.http.comment_interval,
            expose_timings=config.expose_timings,
            spawn=tasks.spawn,
            name=around.name,
        )
        handlers = Handlers(parts)
        tokenization = Tokenization(around.pool, around.directory, handlers.shape)
        local = Local(around.about, config.aliases)
        routes = Routes(
            handlers,
            {
                "/v1/messages/count_tokens": tokenization.count,
                "/tokenize": tokenization.tokenize,
                "/detokenize": tokenization.detokenize,
                "/v1/models": local.models,
                "/v1/models/{model}": local.model,
                "/health": local.health,
                "/ready": local.ready,
                "/metrics": local.metrics,
                "/openapi.json": local.openapi,
            },
            self.access,
        )
        self.server = HttpServer(routes, http_limits(config), tasks.spawn, routes.mark)

    async def listen(self, host: str, port: int, *, shared: bool = False) -> int:
        """Begin to serve; returns the port. `shared`: other processes listen there, too.

        Raises TlsError.
        """
        http = self._config.http
        tls = server_context(http.tls_cert, http.tls_key)
        found = await self.server.listen(host, port, tls=tls, shared=shared)
        self._tasks.spawn("stalls", watch_stalls(self._metrics.stalled))
        return found

    async def stop(self) -> None:
        await self.server.drain(0.0)
        await self._pool.stop()
        if self._request_log is not None:
            await self._request_log.close()
        if self._tracing is not None:
            await self._tracing.stop()

    def _observe(self, record: RequestRecord) -> None:
        self._metrics.observe(record)
        if self._request_log is not None:
            self._request_log.write(record)


def _request_log(config: Config) -> RequestLog | None:
    target = config.request_log
    return RequestLog(target, config.request_log_sample) if target else None


def _tracing(config: Config) -> "Tracing | None":
    if config.tracing.endpoint is None:
        return None
    from gateway.tracing.export import Tracing

    return Tracing(config.tracing)
