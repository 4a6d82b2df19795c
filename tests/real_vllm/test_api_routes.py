"""Every route of vLLM is served, passed or refused: a new one must be decided on."""

import re
from pathlib import Path

import httpx2 as httpx

from bench.vllm_env.layout import Layout
from gateway.api.endpoints import ENDPOINTS, REFUSED
from tests.real_vllm.servers import Server

KNOWN = {endpoint.path for endpoint in ENDPOINTS} | REFUSED.keys()
_ROUTE = re.compile(
    r"(?:@\w*router\.|@app\.|\.)(?:get|post|put|delete|websocket|api_route|add_api_route)\(\s*"
    r"[\"'](/[^\"']*)[\"']"
)


def entrypoints(layout: Layout) -> Path:
    (found,) = layout.environment.glob("lib/python3*/site-packages/vllm/entrypoints")
    return found


def test_every_route_that_the_server_tells_of_is_known(vllm: Server) -> None:
    told = set(httpx.get(f"{vllm.url}/openapi.json", timeout=60).json()["paths"])
    assert len(told) > 15
    assert told <= KNOWN, f"decide on {sorted(told - KNOWN)}"


def test_every_route_in_vllms_source_is_known(layout: Layout) -> None:
    """Also of development mode, pooling, speech, weights: what a flag may switch on."""
    folder = entrypoints(layout)
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        if file.name not in ("dp_supervisor.py", "preload.py"):  # servers of their own
            found |= set(_ROUTE.findall(file.read_text()))
    assert {"/sleep", "/v1/chat/completions", "/classify", "/update_weights"} <= found
    assert found <= KNOWN, f"decide on {sorted(found - KNOWN)}"
