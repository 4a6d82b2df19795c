from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.redis_server import redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with redis_server(tmp_path) as client:
        yield client
