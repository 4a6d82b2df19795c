"""Requests that offer to change the protocol, read as if they did not (RFC 9110 §7.8 allows it).

Some clients offer HTTP/2 with their first request on a connection, Java's and `curl --http2` among
them. The parser stops at such a head and takes no body behind it; told again without the offer, it
reads on.
"""

from collections.abc import Mapping

_OF_THE_OFFER = frozenset((b"upgrade", b"http2-settings", b"connection"))


def may_be_ignored(method: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """False for what makes no sense without the other protocol: tunnels and web sockets."""
    return method != b"CONNECT" and b"websocket" not in headers.get(b"upgrade", b"").lower()


def plain_head(method: bytes, target: bytes, headers: Mapping[bytes, bytes]) -> bytes:
    """The head of the same request without the offer. All of it has been parsed before."""
    kept = {name: value for name, value in headers.items() if name not in _OF_THE_OFFER}
    if b"close" in headers[b"connection"].lower():
        kept[b"connection"] = b"close"
    lines = [b"%b: %b\r\n" % pair for pair in kept.items()]
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(lines))
