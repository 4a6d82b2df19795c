"""The command: it says where it listens, and it goes when told to."""

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from bench.engine import SERIAL
from bench.fake_vllm.__main__ import options, parser
from bench.presets import H100_SXM, LLAMA_8B, engine

COMMAND = (sys.executable, "-m", "bench.fake_vllm")


@asynccontextmanager
async def started(*flags: str) -> AsyncIterator[tuple[Process, str]]:
    process = await asyncio.create_subprocess_exec(*COMMAND, *flags, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(10):
            yield process, json.loads(await process.stdout.readline())["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_at_once_although_a_stream_is_open(number: signal.Signals):
    flags = ("--port", "0", "--decode-us", "1000", "--step-ms", "1")
    body = {"prompt": "x", "stream": True, "ignore_eos": True, "max_tokens": 30_000}
    async with (
        started(*flags) as (process, url),
        aiohttp.ClientSession(url) as http,
        http.post("/v1/completions", json=body) as response,
    ):
        await response.content.readline()
        process.send_signal(number)
        async with asyncio.timeout(2):
            assert await process.wait() == 0


def test_flags_change_what_the_preset_says():
    args = parser().parse_args(
        [
            "--preset",
            "h100-llama-8b",
            "--max-num-seqs",
            "8",
            "--step-ms",
            "2",
            "--attention-ns",
            "3",
        ]
    )
    assert options(args).engine == replace(
        engine(H100_SXM, LLAMA_8B), max_num_seqs=8, step_base=0.002, attention=pytest.approx(3e-9)
    )
    assert options(parser().parse_args([])).engine == SERIAL


async def test_a_port_in_use_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--port", port, stdout=PIPE, stderr=PIPE
        )
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.startswith(b"fake_vllm: ")
    assert port.encode() in errors


async def test_an_impossible_engine_is_said_in_one_line():
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--port", "0", "--kv-tokens", "1000", stdout=PIPE, stderr=PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"does not fit the KV cache" in errors
