"""Names in the DNS are followed for as long as their records say, and no longer."""

from time import monotonic

import pytest

from backends.discovery.dns import DnsQuestion, DnsSource
from backends.discovery.source import Backoff, Template
from tests.backends.discovery.answers import following
from tests.backends.discovery.name_server import NameServer
from tests.backends.scripted import until

TEMPLATE = Template("pool")
POOL = "pool.example"


def source(server: NameServer, record: str = "A") -> DnsSource:
    question = DnsQuestion(POOL, record, port=8000, negative_ttl=0.05, shortest_ttl=0.05)
    backoff = Backoff(0.02, 0.1)
    return DnsSource(TEMPLATE, question, resolver=server.resolver(), backoff=backoff)


async def test_each_address_is_a_backend() -> None:
    server = NameServer({(POOL, "A"): (0, ["10.0.0.2", "10.0.0.1"])})
    async with server.serving(), following(source(server)) as answers:
        await answers.until("pool-10.0.0.1-8000", "pool-10.0.0.2-8000")
        assert answers.last["pool-10.0.0.1-8000"] == "10.0.0.1:8000"


async def test_addresses_of_the_sixth_version_are_bracketed() -> None:
    server = NameServer({(POOL, "AAAA"): (0, ["fd00::1"])})
    async with server.serving(), following(source(server, "AAAA")) as answers:
        await answers.until("pool-fd00--1-8000")
        assert answers.last["pool-fd00--1-8000"] == "[fd00::1]:8000"


async def test_it_is_asked_again_when_the_ttl_is_over_and_not_before() -> None:
    server = NameServer({(POOL, "A"): (1, ["10.0.0.1"])})
    async with server.serving(), following(source(server)) as answers:
        await answers.until("pool-10.0.0.1-8000")
        asked = monotonic()
        server.records[POOL, "A"] = (300, ["10.0.0.9"])
        await answers.until("pool-10.0.0.9-8000")
        assert 0.9 < monotonic() - asked < 5
        assert len(server.questions) == 2


async def test_that_there_are_none_is_an_answer() -> None:
    server = NameServer()
    async with server.serving(), following(source(server)) as answers:
        await answers.until()
        server.records[POOL, "TXT"] = (0, ['"the name exists"'])
        told = len(answers.specs)
        await until(lambda: len(answers.specs) > told)
        assert answers.last == {}
        server.records[POOL, "A"] = (0, ["10.0.0.1"])
        await answers.until("pool-10.0.0.1-8000")


@pytest.mark.parametrize("how", ["failing", "silent"])
async def test_a_server_that_fails_or_is_silent_says_nothing(how: str) -> None:
    server = NameServer({(POOL, "A"): (0, ["10.0.0.1"])})
    async with server.serving(), following(source(server)) as answers:
        await answers.until("pool-10.0.0.1-8000")
        setattr(server, how, True)
        asked = len(server.questions)
        await until(lambda: len(server.questions) > asked + 1)
        setattr(server, how, False)
        told = len(answers.specs)
        await until(lambda: len(answers.specs) > told)
        assert {len(specs) for specs in answers.specs} == {1}, "the last answer held"


async def test_srv_records_bring_their_ports_and_the_first_priority_counts() -> None:
    server = NameServer(
        {
            (POOL, "SRV"): (
                1,
                ["10 5 8001 a.example.", "10 5 8002 b.example.", "20 0 9 c.example."],
            ),
            ("a.example", "A"): (300, ["10.0.0.1"]),
            ("b.example", "A"): (300, ["10.0.0.2"]),
            ("c.example", "A"): (300, ["10.0.0.3"]),
        }
    )
    async with server.serving(), following(source(server, "SRV")) as answers:
        await answers.until("pool-10.0.0.1-8001", "pool-10.0.0.2-8002")
        assert "c.example A" not in server.questions
        server.records[POOL, "SRV"] = (0, ["20 0 9 c.example.", "20 0 9 gone.example."])
        await answers.until("pool-10.0.0.3-9")


def test_failures_are_answered_with_longer_and_longer_waits() -> None:
    backoff = Backoff(first=1.0, longest=4.0)
    waits = [backoff.next() for _ in range(40)]
    assert [
        low <= wait <= 2 * low for wait, low in zip(waits, [0.5, 1, 2, 2, 2], strict=False)
    ] == [True] * 5
    assert max(waits) <= 4.0
    backoff.reset()
    assert backoff.next() <= 1.0
