"""What the commands for operators have in common: where Redis is, and how a failure is told."""

import asyncio
import getpass
import json
import re
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import typer
from redis.asyncio import Redis

from gateway.control.desk import Refused
from gateway.control.store import LOST, Store

T = TypeVar("T")

RedisOption = Annotated[
    str, typer.Option("--redis", envvar="FOREBAY_REDIS", help="Redis with the operators' keys.")
]
GatewayOption = Annotated[
    str, typer.Option("--gateway", envvar="FOREBAY_GATEWAY", help="A gateway, for its traffic.")
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
    except LOST as error:
        give_up(f"redis: {error}")


def traffic_of(gateway: str) -> Mapping[str, Any] | None:
    """What the gateway's `/ready` says, also when it is not ready; None when nobody answers."""
    try:
        with urlopen(f"{gateway.rstrip('/')}/ready", timeout=5) as answer:  # noqa: S310
            return json.loads(answer.read())  # type: ignore[no-any-return]
    except URLError as error:
        if hasattr(error, "read"):
            return json.loads(error.read())  # type: ignore[no-any-return]
        return None
    except OSError:
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
