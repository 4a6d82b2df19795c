"""A DNS server on a real UDP socket, with the records that a test gives it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
from dns.asyncresolver import Resolver


@dataclass
class NameServer(asyncio.DatagramProtocol):
    """`records` maps a name and type to TTL and values; a name that has none does not exist."""

    records: dict[tuple[str, str], tuple[int, list[str]]] = field(default_factory=dict)
    failing: bool = False
    silent: bool = False
    questions: list[str] = field(default_factory=list)
    port: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["NameServer"]:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self.port = transport.get_extra_info("sockname")[1]
        try:
            yield self
        finally:
            transport.close()

    def resolver(self) -> Resolver:
        resolver = Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = self.port
        resolver.lifetime = 0.3
        return resolver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = question.name.to_text(omit_final_dot=True), question.rdtype.name
        self.questions.append(f"{name} {kind}")
        if self.silent:
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        if self.failing:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif (name, kind) in self.records:
            ttl, values = self.records[name, kind]
            answer.answer.append(dns.rrset.from_text(question.name, ttl, "IN", kind, *values))
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(answer.to_wire(), addr)  # type: ignore[attr-defined]
