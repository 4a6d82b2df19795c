"""What serves requests, put together: HTTP server, tokenizer pool, handlers, records.

One process has one of these, and a node as many as it has relay processes. What it needs to be
told and decided by others is in `Neighbours`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.directory import Directory
from gateway.gate import Admitter, Gate
from gateway.handlers import Handlers, Parts, Upstream
from gateway.log import RequestLog
from gateway.metrics import Metrics
from gateway.record import RequestRecord
from gateway.retry import RetryBudget
from gateway.routes import About, Routes
from gateway.server import HttpServer
from gateway.settings import http_limits, stream_timeouts, watch
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
        self.access = Access(config.keys)
        self._pool = around.pool
        self._metrics = metrics
        self._request_log = _request_log(config)
        self._tracing = _tracing(config)
        parts = Parts(
            pool=around.pool,
            gate=Gate(around.admitter),
            upstream=around.upstream,
            directory=around.directory,
            retries=RetryBudget(config.retry_share),
            timeouts=stream_timeouts(config),
            watchdog=Watchdog(watch(config), around.distrust, metrics.parity_differs),
            observe=self._observe,
            paced=metrics.paced,
            tracing=self._tracing,
            retried=metrics.retries.inc,
            expose_timings=config.expose_timings,
            name=around.name,
        )
        tokenization = Tokenization(around.pool, around.directory)
        routes = Routes(Handlers(parts), tokenization, around.about)
        self.server = HttpServer(routes, http_limits(config), tasks.spawn)

    async def listen(self, host: str, port: int, *, shared: bool = False) -> int:
        """Begin to serve; returns the port. `shared`: other processes listen there, too.

        Raises TlsError.
        """
        http = self._config.http
        tls = server_context(http.tls_cert, http.tls_key)
        return await self.server.listen(host, port, tls=tls, shared=shared)

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
