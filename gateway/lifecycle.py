"""Start, serve, drain, stop: the ladder that every run of the gateway climbs and comes down.

The first SIGTERM or SIGINT begins the drain: nothing new is taken, streams may finish for the
configured grace. A second one ends the grace at once.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from gateway.app import App
from gateway.brain import Brain
from gateway.config import Config
from gateway.node.node import Node
from gateway.tasks import Tasks
from gateway.tls import TlsError, server_context
from gateway.ui.listener import AdminTaken

log = logging.getLogger("forebay.lifecycle")


class StartupError(Exception):
    """The gateway cannot start; the message says what to change."""


Beside = Callable[[Brain, Tasks], None]
"""Begins what runs beside a gateway, with its brain, and with tasks that end when it does."""


async def serve_until_stopped(config: Config, beside: Beside | None = None) -> None:
    """Run one gateway. Raises StartupError when it cannot even listen."""
    _check_tls(config)
    stop, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    app = _gateway(config)
    try:
        try:
            port = await app.start()
        except AdminTaken as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            raise StartupError(
                f"cannot listen on {config.host}:{config.port} ({error.strerror or error}); "
                "stop what uses the port, or choose another with --port"
            ) from error
        log.info("listening on http://%s:%d", config.host, port)
        if beside is not None:
            beside(app.brain, app.tasks)
        await stop.wait()
        await _leave(app, config.drain_delay, hurry)
        log.info(
            "draining: streams may finish for %.0f s; signal again to stop now", config.drain_grace
        )
        draining = app.tasks.spawn("drain", app.drain(config.drain_grace))
        hurrying = app.tasks.spawn("hurry", hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not draining.done():
            await app.drain(0.0)
    finally:
        await app.stop()
        log.info("stopped")


async def _leave(app: App | Node, delay: float, hurry: asyncio.Event) -> None:
    """Serve on for a while in which load balancers learn that we are going, and send no more.

    A port that is closed at once would lose what they still send here.
    """
    if not delay:
        return
    log.info("leaving: /ready says so, and requests are served for %.0f s more", delay)
    app.leave()
    try:
        async with asyncio.timeout(delay):
            await hurry.wait()
    except TimeoutError:
        pass


def _gateway(config: Config) -> App | Node:
    """One process where that is all there is to gain, else a brain and its relay processes."""
    count = config.workers or len(os.sched_getaffinity(0))
    return App(config) if count == 1 else Node(config, count)


def _check_tls(config: Config) -> None:
    """Relay processes read the files for themselves, where nobody would hear of what is wrong."""
    try:
        server_context(config.http.tls_cert, config.http.tls_key)
    except TlsError as error:
        raise StartupError(str(error)) from error
