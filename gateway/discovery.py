"""Backends that are found while the gateway runs: the settings, and what begins to look.

What a source is and how its answers become members of the fleet is in `backends.discovery`.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from backends.discovery.dns import DnsQuestion, DnsSource
from backends.discovery.kubernetes import Cluster, KubernetesSource, Selection
from backends.discovery.reconcile import Reconciler
from backends.discovery.registry import RegistrySettings, RegistrySource
from backends.discovery.source import Found, Source, Template
from backends.types import BackendSpec
from gateway.schema import Count, Name, Names, Schema, Seconds

log = logging.getLogger("forebay.discovery")

Port = Annotated[int, Field(ge=1, le=65_535)]


class _SourceConfig(Schema):
    """What every backend of a source is told to be."""

    classes: Names = ()
    limit: Count = 64
    weight: Annotated[float, Field(ge=0, le=1000)] = 1.0
    scheme: Literal["http", "https"] = "http"
    api_key: str | None = None

    def template(self, name: str) -> Template:
        return Template(
            name=name,
            classes=frozenset(self.classes),
            limit=self.limit,
            weight=self.weight,
            scheme=self.scheme,
            api_key=self.api_key,
        )


class DnsConfig(_SourceConfig):
    """Every address behind a name; with SRV records, on the ports that they tell."""

    kind: Literal["dns"]
    host: str
    record: Literal["A", "AAAA", "SRV"] = "A"
    port: Port = 8000

    def source(self, name: str) -> Source:
        return DnsSource(self.template(name), DnsQuestion(self.host, self.record, self.port))


class KubernetesConfig(_SourceConfig):
    """The ready endpoints of EndpointSlices by label; a Service's own are labelled
    `kubernetes.io/service-name=<service>`. `api` is found in the pod's environment."""

    kind: Literal["kubernetes"]
    labels: str
    namespace: str | None = None
    port: Port | str = 8000
    api: Annotated[str, Field(pattern=r"^https?://")] | None = None

    @model_validator(mode="after")
    def _has_a_cluster(self) -> Self:
        self._cluster()
        return self

    def source(self, name: str) -> Source:
        selection = Selection(self.labels, self.port, self.namespace)
        return KubernetesSource(self.template(name), selection, self._cluster())

    def _cluster(self) -> Cluster:
        return Cluster(self.api) if self.api else Cluster.around(os.environ)


class RegistryConfig(_SourceConfig):
    """Servers that register themselves in Redis, `ttl` seconds at a time."""

    kind: Literal["redis"]
    redis: Annotated[str, Field(pattern=r"^(redis|rediss|unix)://")]
    ttl: Seconds = 15.0

    def source(self, name: str) -> Source:
        return RegistrySource(self.template(name), RegistrySettings(self.redis, ttl=self.ttl))


DiscoveryConfig = Annotated[
    DnsConfig | KubernetesConfig | RegistryConfig, Field(discriminator="kind")
]


def discover(
    settings: Mapping[Name, DiscoveryConfig], reconciler: Reconciler, classes: Sequence[str]
) -> None:
    """Begin to follow every source."""
    known = frozenset(classes)
    for name, config in settings.items():
        reconciler.follow(name, _Known(config.source(name), known))


class _Known:
    """A source without the backends of classes that nobody configured, or part of whose classes
    nobody did: requests could reach them in ways that nobody meant."""

    def __init__(self, source: Source, classes: frozenset[str]) -> None:
        self._source = source
        self._classes = classes
        self._told: frozenset[str] = frozenset()

    async def follow(self, found: Found) -> None:
        def checked(specs: Sequence[BackendSpec]) -> None:
            found([spec for spec in specs if self._fits(spec)])

        await self._source.follow(checked)

    def _fits(self, spec: BackendSpec) -> bool:
        unknown = spec.classes - self._classes
        if unknown and spec.name not in self._told:
            self._told |= {spec.name}
            log.warning(
                "backend %s is left out: no class %s", spec.name, ", ".join(sorted(unknown))
            )
        return not unknown
