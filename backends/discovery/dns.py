"""Backends behind a name in the DNS: one per address, asked again when the records' TTL is over.

A name that does not exist, or has no such record, is an answer: there are none (so a headless
service says when its last server is gone). A resolver that fails or is silent is not.
"""

import asyncio
import logging
from dataclasses import dataclass

from dns.asyncresolver import Resolver
from dns.exception import DNSException
from dns.rdtypes.IN.SRV import SRV
from dns.resolver import NXDOMAIN, Answer, NoAnswer

from backends.discovery.source import Backoff, Found, Template
from backends.types import BackendSpec

log = logging.getLogger("forebay.discovery")


@dataclass(frozen=True, slots=True)
class DnsQuestion:
    """`record` is A, AAAA or SRV; `port` goes with addresses, SRV brings its own.

    `negative_ttl` is how long the answer "there are none" holds. A TTL counts as at least
    `shortest_ttl` (0 is common behind load balancers) and at most `longest_ttl`.
    """

    host: str
    record: str = "A"
    port: int = 8000
    negative_ttl: float = 5.0
    shortest_ttl: float = 1.0
    longest_ttl: float = 300.0


class DnsSource:
    """Asks one question again and again. `resolver` is the system's unless given."""

    def __init__(
        self,
        template: Template,
        question: DnsQuestion,
        *,
        resolver: Resolver | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._template = template
        self._question = question
        self._resolver = resolver
        self._backoff = backoff or Backoff()

    async def follow(self, found: Found) -> None:
        while True:
            try:
                specs, ttl = await self._ask()
            except DNSException as error:
                log.warning(
                    "discovery %s: %s keeps its last answer: %s",
                    *(self._template.name, self._question.host, error),
                )
                await asyncio.sleep(self._backoff.next())
            else:
                self._backoff.reset()
                found(specs)
                await asyncio.sleep(min(ttl, self._question.longest_ttl))

    async def _ask(self) -> tuple[list[BackendSpec], float]:
        """The backends, and how long this answer holds."""
        question = self._question
        answer = await self._resolve(question.host, question.record)
        if answer is None:
            return [], question.negative_ttl
        ttl = self._ttl(answer)
        if question.record != "SRV":
            places = [(record.address, question.port) for record in answer]
            return [self._template.at(host, port) for host, port in sorted(places)], ttl
        return await self._servers([record for record in answer if isinstance(record, SRV)], ttl)

    async def _servers(self, records: list[SRV], ttl: float) -> tuple[list[BackendSpec], float]:
        """The addresses of the targets to try first (RFC 2782: those of the lowest priority)."""
        first = min(record.priority for record in records)
        places: set[tuple[str, int]] = set()
        for record in records:
            if record.priority != first:
                continue
            answer = await self._resolve(record.target.to_text(), "A")
            if answer is not None:
                ttl = min(ttl, self._ttl(answer))
                places |= {(address.address, record.port) for address in answer}
        return [self._template.at(host, port) for host, port in sorted(places)], ttl

    async def _resolve(self, host: str, record: str) -> Answer | None:
        """None: there are no such records. Raises DNSException without an answer."""
        if self._resolver is None:
            self._resolver = Resolver()
        try:
            return await self._resolver.resolve(host, record, search=True)
        except (NXDOMAIN, NoAnswer):
            return None

    def _ttl(self, answer: Answer) -> float:
        return max(float(answer.chaining_result.minimum_ttl), self._question.shortest_ttl)
