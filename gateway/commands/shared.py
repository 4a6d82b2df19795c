"""What the commands for operators have in common: where Redis is, and how a failure is told."""

import asyncio
import getpass
import json
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from http.client import HTTPException
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import typer
from redis.asyncio import Redis

from gateway.control.desk import Refused
from gateway.control.overlay import Rejection
from gateway.control.store import LOST, Store
from gateway.schema import redis_urls

T = TypeVar("T")


def _redis(value: str) -> str:
    try:
        return redis_urls(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _gateway(value: str) -> str:
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise typer.BadParameter(f"write http://HOST:PORT or https://HOST:PORT, not {value!r}")
    return value


RedisOption = Annotated[
    str,
    typer.Option(
        "--redis", envvar="FOREBAY_REDIS", help="Redis with the operators' keys.", callback=_redis
    ),
]
GatewayOption = Annotated[
    str,
    typer.Option(
        "--gateway",
        envvar="FOREBAY_GATEWAY",
        help="A gateway, for its traffic.",
        callback=_gateway,
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--as", help="Your name in the history; default USER@HOST.")
]
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
LOCAL_REDIS = "redis://127.0.0.1:6379"
LOCAL_GATEWAY = "http://127.0.0.1:8080"


def with_redis(url: str, work: Callable[[Redis], Awaitable[T]]) -> T:
    """Do the work on the primary; ends the program with a sentence when it cannot be done."""

    async def run() -> T:
        store = Store(url)
        try:
            return await work(await store.redis())
        finally:
            await store.lost()

    try:
        return asyncio.run(run())
    except Refused as error:
        give_up(str(error))
    except Rejection as error:
        give_up(f"what is in force is not valid with this file: {error}")
    except LOST as error:
        give_up(f"redis: {error}")


def traffic_of(gateway: str) -> Mapping[str, Any] | None:
    """What the gateway's `/ready` says, also when it is not ready; None when nobody answers."""
    try:
        with urlopen(f"{gateway.rstrip('/')}/ready", timeout=5) as answer:  # noqa: S310
            return json.loads(answer.read())  # type: ignore[no-any-return]
    except URLError as error:
        return _document(error.read()) if hasattr(error, "read") else None
    except (OSError, HTTPException, ValueError):
        return None


def _document(body: bytes) -> Mapping[str, Any] | None:
    """None for what is not a gateway's."""
    try:
        return json.loads(body)  # type: ignore[no-any-return]
    except ValueError:
        return None


def seconds(option: str, span: str) -> float:
    """A span such as 90m. Raises ValueError that names the option."""
    match = _SPAN.fullmatch(span)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{option} takes a span such as 90m, 24h or 7d, not {span!r}")
    return float(match[1]) * _UNITS[match[2]]


def author(given: str | None) -> str:
    return given or f"{getpass.getuser()}@{socket.gethostname()}"


def give_up(message: str) -> NoReturn:
    typer.secho(f"forebay: {message}", fg=typer.colors.RED, err=True)
    sys.exit(1)
