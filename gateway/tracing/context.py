"""Whose trace a request belongs to: W3C Trace Context (https://www.w3.org/TR/trace-context/), read
and written. Pure but for the randomness of ids."""

import re
import secrets
from dataclasses import dataclass

TRACEPARENT = b"traceparent"

_HEADER = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_UNKNOWN_VERSION = b"ff"


@dataclass(frozen=True, slots=True)
class Trace:
    """One request's place in its trace. `parent` is its caller's span, 0 without one."""

    trace_id: int
    span_id: int
    parent: int
    sampled: bool

    def header(self) -> str:
        """The `traceparent` for the backend: our span is its parent."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{_SAMPLED * self.sampled:02x}"


def begin(header: bytes | None, sample: float) -> Trace:
    """The place of a request with this `traceparent`.

    A caller's decision to sample is kept. Of the others a share is sampled by trace id, so that
    every service with the same share chooses the same traces.
    """
    found = _HEADER.fullmatch(header) if header is not None else None
    if found is not None and found[1] != _UNKNOWN_VERSION and not (found[1] == b"00" and found[5]):
        trace_id, parent = int(found[2], 16), int(found[3], 16)
        if trace_id and parent:
            sampled = bool(int(found[4], 16) & _SAMPLED)
            return Trace(trace_id, _new(64), parent, sampled)
    trace_id = _new(128)
    low = trace_id & 0xFFFF_FFFF_FFFF_FFFF
    return Trace(trace_id, _new(64), 0, low < round(sample * (1 << 64)))


def _new(bits: int) -> int:
    """An id that is not 0, which means that there is none."""
    return secrets.randbits(bits) or 1
