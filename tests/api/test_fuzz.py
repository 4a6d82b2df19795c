"""The fuzzer's short form; its long one is `python -m tests.api.fuzz --inputs 100000`."""

import random
from pathlib import Path

from tests.api.fuzz import FAST, fuzz, is_ours
from tests.api.inputs import connection
from tests.integration.parts import running_engine, running_gateway


async def test_no_input_breaks_the_gateway_or_leaves_anything_behind(cache_dir: Path) -> None:
    async with (
        running_engine(*FAST) as engine,
        running_gateway(cache_dir, backends={"only": {"url": engine.url}}) as gateway,
    ):
        report = await fuzz(gateway, 1500, seed=7)
    assert report.wrong == []
    assert report.inputs == 1500
    assert len(report.kinds) == 13
    assert {200, 400, 404, 405} <= report.statuses.keys()


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert connection(random.Random("1-5")) == connection(random.Random("1-5"))


def test_a_failure_of_the_gateway_would_be_seen() -> None:
    own = b'{"error":{"message":"m","type":"server_error","param":null,"code":"internal_error"}}'
    assert is_ours(500, own)
    assert not is_ours(500, b"500 Internal Server Error")
    assert not is_ours(503, own)
