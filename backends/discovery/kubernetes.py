"""Backends from Kubernetes EndpointSlices: a list, then a watch from the list's version on.

Lives here: the protocol (list, watch, bookmarks, a version that expired, a token that rotates).
Not here: what a slice means (`slices`). Spoken over plain HTTP with the pod's service account,
which needs `get`, `list` and `watch` on `endpointslices` in `discovery.k8s.io`.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import orjson

from backends.discovery.slices import backends_of
from backends.discovery.source import Backoff, Found, Template

log = logging.getLogger("forebay.discovery")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_DOCUMENT = 32 * 1024 * 1024
"""Bytes of a list, or of one event of a watch, that are read at most."""

LONG = 5.0
"""A watch that lasted for so many seconds shows that the server is well."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the API server is reached. `account` has the files `token` and, for https, `ca.crt`.

    A watch is ended by the server after `watch_for` seconds, and by us when it then has not been.
    """

    url: str
    account: Path = ACCOUNT
    watch_for: int = 300
    answer_within: float = 30.0

    @classmethod
    def around(cls, environ: Mapping[str, str]) -> "Cluster":
        """The cluster that this pod runs in. Raises ValueError outside of one."""
        host = environ.get("KUBERNETES_SERVICE_HOST")
        if not host:
            raise ValueError("not in a Kubernetes pod: KUBERNETES_SERVICE_HOST is not set")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which EndpointSlices: by label selector, in a namespace (None: the pod's own), and which of
    their ports, by name or number."""

    labels: str
    port: str | int = 8000
    namespace: str | None = None


class Expired(Exception):
    """The version to watch from is too old (410 Gone): everything must be listed again."""


class KubernetesSource:
    """Follows the EndpointSlices of one selection."""

    def __init__(
        self,
        template: Template,
        selection: Selection,
        cluster: Cluster,
        *,
        backoff: Backoff | None = None,
    ) -> None:
        self._template = template
        self._selection = selection
        self._cluster = cluster
        self._backoff = backoff or Backoff()
        self._slices: dict[str, dict[str, Any]] = {}

    async def follow(self, found: Found) -> None:
        async with aiohttp.ClientSession(connector=self._connector()) as session:
            while True:
                try:
                    version = await self._list(session, found)
                    while True:
                        began = monotonic()
                        version = await self._watch(session, version, found)
                        if monotonic() - began > LONG:
                            self._backoff.reset()
                        await asyncio.sleep(self._backoff.next())
                except Expired:
                    log.info("discovery %s: the version expired; listing anew", self._name)
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    log.warning("discovery %s keeps its last answer: %s", self._name, error)
                await asyncio.sleep(self._backoff.next())

    @property
    def _name(self) -> str:
        return self._template.name

    def _connector(self) -> aiohttp.TCPConnector:
        authority = self._cluster.account / "ca.crt"
        if self._cluster.url.startswith("https") and authority.exists():
            return aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(authority)))
        return aiohttp.TCPConnector()

    async def _list(self, session: aiohttp.ClientSession, found: Found) -> str:
        """Everything that there is; returns its version."""
        slices: dict[str, dict[str, Any]] = {}
        query = {"labelSelector": self._selection.labels}
        while True:
            document = await self._page(session, query)
            for item in document.get("items") or []:
                slices[item["metadata"]["name"]] = item
            meta = document.get("metadata") or {}
            if not meta.get("continue"):
                break
            query["continue"] = meta["continue"]
        self._slices = slices
        self._tell(found)
        return str(meta.get("resourceVersion", ""))

    async def _page(
        self, session: aiohttp.ClientSession, query: Mapping[str, str]
    ) -> dict[str, Any]:
        limits = aiohttp.ClientTimeout(total=self._cluster.answer_within)
        async with session.get(
            self._url(), params=query, headers=self._headers(), timeout=limits
        ) as answer:
            _check(answer.status)
            document = orjson.loads(await answer.read())
        if not isinstance(document, dict):
            raise ValueError("the list is not an object")
        return document

    async def _watch(self, session: aiohttp.ClientSession, version: str, found: Found) -> str:
        """Follow what changes from `version` on; returns the version reached at the watch's end."""
        query = {
            "labelSelector": self._selection.labels,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._cluster.watch_for),
        }
        limits = aiohttp.ClientTimeout(
            total=self._cluster.watch_for + self._cluster.answer_within,
            sock_connect=self._cluster.answer_within,
        )
        async with session.get(
            self._url(), params=query, headers=self._headers(), timeout=limits
        ) as answer:
            _check(answer.status)
            try:
                async for event in _lines(answer.content):
                    version = self._take(event, version, found)
            except (aiohttp.ClientPayloadError, aiohttp.ClientOSError) as error:
                # A watch may be cut at any time, by a proxy or a restart: go on from where it was.
                log.info("discovery %s: the watch was cut: %s", self._name, error)
        return version

    def _take(self, event: dict[str, Any], version: str, found: Found) -> str:
        """Apply one event; returns the version that it brings. Raises Expired."""
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            _check(int(item.get("code") or 500), str(item.get("message")))
        meta = item.get("metadata") or {}
        name = str(meta.get("name"))
        if kind in ("ADDED", "MODIFIED"):
            self._slices[name] = item
            self._tell(found)
        elif kind == "DELETED":
            self._slices.pop(name, None)
            self._tell(found)
        return str(meta.get("resourceVersion") or version)

    def _tell(self, found: Found) -> None:
        found(backends_of(self._slices.values(), self._selection.port, self._template))

    def _url(self) -> str:
        namespace = self._selection.namespace or self._read("namespace")
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        return self._cluster.url.rstrip("/") + path

    def _headers(self) -> dict[str, str]:
        # Read anew for each request: the token is replaced about once an hour.
        return {"authorization": f"Bearer {self._read('token')}", "accept": "application/json"}

    def _read(self, name: str) -> str:
        return (self._cluster.account / name).read_text().strip()


def _check(status: int, message: str = "") -> None:
    if status == 410:
        raise Expired
    if status != 200:
        raise ValueError(f"the API server answered {status} {message}".rstrip())


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The events of a watch: one JSON object per line, of any length up to our bound."""
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_DOCUMENT:
            raise ValueError(f"an event of over {MAX_DOCUMENT} bytes")
        for line in lines:
            if line.strip():
                event = orjson.loads(line)
                if isinstance(event, dict):
                    yield event
