"""What Kubernetes EndpointSlices say about backends. Pure: documents in, backends out."""

from collections.abc import Iterable, Iterator
from typing import Any

from backends.discovery.source import Template
from backends.types import BackendSpec


def backends_of(
    slices: Iterable[dict[str, Any]], port: str | int, template: Template
) -> list[BackendSpec]:
    """The ready endpoints of all slices, in the order of their names.

    An endpoint is in several slices for a moment while Kubernetes moves it, and in one per IP
    family in a dual-stack cluster: it is one backend, IPv4 before IPv6.
    """
    found: dict[str, BackendSpec] = {}
    for item in sorted(slices, key=lambda s: str(s.get("addressType"))):
        number = _port(item, port)
        if number is None:
            continue
        for host, pod in _ready(item):
            spec = template.at(host, number, pod)
            found.setdefault(spec.name, spec)
    return [found[name] for name in sorted(found)]


def _port(item: dict[str, Any], wanted: str | int) -> int | None:
    """The number of the wanted port in this slice. A number is taken although no port says it:
    a headless service need not name its ports."""
    if isinstance(wanted, int):
        return wanted
    for port in item.get("ports") or []:
        if port.get("name") == wanted and isinstance(port.get("port"), int):
            return int(port["port"])
    return None


def _ready(item: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Address and pod of each endpoint that wants traffic. A terminating one says not ready."""
    for endpoint in item.get("endpoints") or []:
        conditions = endpoint.get("conditions") or {}
        addresses = endpoint.get("addresses") or []
        # The API: an unset condition is to be taken as ready; only the first address is used.
        if conditions.get("ready", True) is not False and addresses:
            target = endpoint.get("targetRef") or {}
            yield addresses[0], target.get("name") if target.get("kind") == "Pod" else None
