"""A Kubernetes API server as far as EndpointSlices go: lists in pages, and watches from a version.

It follows the protocol of the real one: every change has a version of its own; a watch replays
what came after the version asked for, then follows; bookmarks carry versions without objects; a
version that was compacted away is 410, told as an ERROR event within a watch (as the real server
does) or as the status of the answer; a watch ends after `timeoutSeconds`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def endpoint(address: str, pod: str | None = None, **conditions: bool | None) -> dict[str, Any]:
    target = {"targetRef": {"kind": "Pod", "name": pod}} if pod else {}
    return {"addresses": [address], "conditions": conditions, **target}


@dataclass
class ApiServer:
    """What the server has, and what it was asked. Changed by the test."""

    token: str = "t1"
    page: int = 2
    version: int = 100
    oldest: int = 0
    gone_as_status: bool = False
    refuse: int = 0  # a status to answer everything with
    port: int = 0
    refused: int = 0
    lists: list[dict[str, str]] = field(default_factory=list)
    watches: list[dict[str, str]] = field(default_factory=list)
    open_watches: set[web.StreamResponse] = field(default_factory=set)
    _slices: dict[str, dict[str, Any]] = field(default_factory=dict)
    _history: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(self, name: str, *endpoints: dict[str, Any], **fields: Any) -> None:
        known = name in self._slices
        self._slices[name] = {
            "metadata": {"name": name, "labels": {"app": "vllm"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
            "endpoints": list(endpoints),
            **fields,
        }
        await self._tell("MODIFIED" if known else "ADDED", self._slices[name])

    async def delete(self, name: str) -> None:
        await self._tell("DELETED", self._slices.pop(name))

    async def bookmark(self) -> None:
        await self._tell("BOOKMARK", {"kind": "EndpointSlice", "metadata": {}})

    def compact(self) -> None:
        """Forget the changes so far: who is behind must list again."""
        self._history.clear()
        self.oldest = self.version

    async def cut_watches(self) -> None:
        """Lose the connections of all watches, in the middle of a chunked answer."""
        for response in self.open_watches:
            assert response._payload_writer is not None
            transport = response._payload_writer.transport  # type: ignore[attr-defined]
            transport.abort()

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["ApiServer"]:
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _tell(self, kind: str, item: dict[str, Any]) -> None:
        async with self._changed:
            self.version += 1
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            if item["metadata"].get("name") in self._slices:
                self._slices[item["metadata"]["name"]] = item
            self._history.append((self.version, {"type": kind, "object": item}))
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        allowed = request.headers.get("authorization") == f"Bearer {self.token}"
        if self.refuse or not allowed:
            self.refused += 1
            return web.Response(status=self.refuse or 401)
        assert request.match_info["namespace"] == "ns"
        assert request.query["labelSelector"] == "app=vllm"
        if request.query.get("watch") == "1":
            self.watches.append(dict(request.query))
            return await self._watch(request)
        self.lists.append(dict(request.query))
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        begin = int(request.query.get("continue", 0))
        names = sorted(self._slices)[begin : begin + self.page]
        more = begin + self.page < len(self._slices)
        meta = {"resourceVersion": str(self.version)}
        if more:
            meta["continue"] = str(begin + self.page)
        items = [self._slices[name] for name in names]
        return web.json_response({"kind": "EndpointSliceList", "metadata": meta, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        at = int(request.query["resourceVersion"])
        assert request.query["allowWatchBookmarks"] == "true"
        if at < self.oldest and self.gone_as_status:
            return web.Response(status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        self.open_watches.add(response)
        try:
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                await self._follow(response, at)
        except TimeoutError:
            pass
        finally:
            self.open_watches.discard(response)
        return response

    async def _follow(self, response: web.StreamResponse, at: int) -> None:
        if at < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await _write(response, {"type": "ERROR", "object": status})
            return
        while True:
            for version, event in list(self._history):
                if version > at:
                    await _write(response, event)
                    at = version
            async with self._changed:
                await self._changed.wait_for(lambda: self.version > at)  # noqa: B023


async def _write(response: web.StreamResponse, event: dict[str, Any]) -> None:
    """One line, in two pieces: nothing promises that a line is one chunk."""
    line = json.dumps(event).encode() + b"\n"
    await response.write(line[:10])
    await asyncio.sleep(0)
    await response.write(line[10:])
