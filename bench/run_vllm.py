"""`python -m bench.run_vllm`, what `make run-vllm` calls: Forebay in front of a real vLLM.

vLLM runs on the CPU with SmolLM2-135M-Instruct, which answers sensibly, at some 100 prompt tokens
a second: for a conversation, not for load. How its environment is made: scripts/vllm_env.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from bench.children import Children, children
from bench.demo import HOST, DemoFailed, Redis, ask, check_port, command, find_redis, free_port
from bench.demo import until_ready as until_gateway_ready
from scripts.vllm_env import serve
from scripts.vllm_env.build import BuildError, build
from scripts.vllm_env.layout import Layout, locate

QUESTION = "What is the capital of France?"
MAX_MODEL_LEN = 8192


async def start_vllm(started: Children, layout: Layout) -> str:
    """Start vLLM and wait until its API answers; returns its address."""
    port = free_port()
    settings = [f"{name}={value}" for name, value in serve.settings().items()]
    arguments = serve.command(layout, layout.smollm2, port, max_model_len=MAX_MODEL_LEN)
    await started.start("vllm", "env", *settings, *arguments)
    url = f"http://{HOST}:{port}"
    print(f"vllm     {url}  (starting, takes about 40 s)", flush=True)
    deadline = time.monotonic() + serve.READY_WITHIN
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline:
            try:
                async with http.get(f"{url}/health") as response:
                    if response.status == 200:
                        return url
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.2)
    raise DemoFailed(f"vLLM was not ready after {serve.READY_WITHIN:.0f} s")


async def start_gateway(started: Children, port: int, vllm: str, redis_port: int) -> str:
    await started.start(
        "gateway",
        *(sys.executable, "-m", "gateway.cli", "serve", "--host", HOST, "--port", str(port)),
        *("--backend", vllm, "--redis", f"redis://{HOST}:{redis_port}", "--expose-timings"),
    )
    url = f"http://{HOST}:{port}"
    print(f"gateway  {url}", flush=True)
    return url


def advise(gateway: str, model: str, redis: Redis, redis_port: int) -> None:
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": "Give me three facts about water."}],
            "stream": True,
        }
    )
    print(f"""
Try next:
  another request
    curl -N {gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
  one short request at a time, from now on (hdel ... limit undoes it)
    {redis.client} -p {redis_port} hset forebay:class:short limit 1
  what the gateway counts
    {gateway}/metrics

Ctrl-C stops everything.""")


async def _built() -> Layout:
    """The vLLM environment and its models, made now if there are none yet (three minutes)."""
    layout = locate()
    try:
        await asyncio.to_thread(build, layout, lambda line: print(line, flush=True))
    except BuildError as error:
        raise DemoFailed(str(error)) from error
    return layout


async def run(port: int, *, once: bool) -> None:
    """Raises DemoFailed or ChildEnded; leaves no process behind, however it ends."""
    began = time.monotonic()
    check_port(port)
    layout = await _built()
    model = layout.smollm2.name
    with tempfile.TemporaryDirectory(prefix="forebay-vllm-") as logs:
        async with children(Path(logs)) as started, aiohttp.ClientSession() as http:
            redis, redis_port = find_redis(), free_port()
            await started.start(
                "redis", redis.server, "--bind", HOST, "--port", str(redis_port), "--save", ""
            )
            print(f"redis    {HOST}:{redis_port}  ({redis.server})", flush=True)
            vllm = await start_vllm(started, layout)
            gateway = await start_gateway(started, port, vllm, redis_port)
            await until_gateway_ready(http, gateway)
            print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
            await ask(http, gateway, model, QUESTION)
            if not once:
                advise(gateway, model, redis, redis_port)
                sys.stdout.flush()
                await asyncio.Event().wait()


if __name__ == "__main__":
    command(run, name="run_vllm", about=__doc__)
