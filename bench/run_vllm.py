"""`python -m bench.run_vllm`, what `make run-vllm` calls: Forebay in front of a real vLLM.

vLLM runs on the CPU with SmolLM2-135M-Instruct, which answers sensibly, at some 100 prompt tokens
a second: for a conversation, not for load. It is `forebay up` with a plan of one engine. How
vLLM's environment is made: bench/vllm_env.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import yaml

from bench.children import Children, children
from bench.demo import (
    HOST,
    DemoFailed,
    Redis,
    ask,
    check_port,
    command,
    find_redis,
    free_port,
    until_ready,
)
from bench.vllm_env import serve
from bench.vllm_env.build import BuildError, build
from bench.vllm_env.layout import Layout, locate

QUESTION = "What is the capital of France?"
MAX_MODEL_LEN = 8192
GRACE = 60.0
"""Seconds to stop in: the gateway lets streams finish, then vLLM ends."""


def write_plan(layout: Layout, folder: Path, port: int) -> Path:
    """A plan of one engine, started the way that this machine's vLLM needs."""
    program, *options = serve.command(layout, layout.smollm2, port, max_model_len=MAX_MODEL_LEN)
    flags = _flags(options)
    engine = {
        "model": str(layout.smollm2),
        "port": port,
        "flags": {n: v for n, v in flags.items() if n not in ("model", "host", "port")},
        "environment": serve.settings(),
    }
    path = folder / "plan.yaml"
    command = [program, "-m", options[1]]
    path.write_text(yaml.safe_dump({"command": command, "engines": {"vllm": engine}}))
    return path


async def start_forebay(started: Children, plan: Path, port: int, redis_port: int) -> str:
    """The plan's engine, supervised, and the gateway in front of it; returns its address."""
    await started.start(
        "forebay",
        *(sys.executable, "-m", "gateway.cli", "up", str(plan), "--host", HOST),
        *("--port", str(port), "--redis", f"redis://{HOST}:{redis_port}", "--expose-timings"),
    )
    url = f"http://{HOST}:{port}"
    print(f"gateway  {url}  (vLLM is starting behind it, which takes about 40 s)", flush=True)
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


def _flags(options: list[str]) -> dict[str, str | bool]:
    """`--name value` and `--switch`, as a plan has them."""
    flags: dict[str, str | bool] = {}
    for option, following in zip(options, [*options[1:], "--"], strict=True):
        if option.startswith("--"):
            flags[option[2:]] = True if following.startswith("--") else following
    return flags


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
        async with (
            children(Path(logs), grace=GRACE) as started,
            aiohttp.ClientSession() as http,
        ):
            redis, redis_port = find_redis(), free_port()
            await started.start(
                "redis", redis.server, "--bind", HOST, "--port", str(redis_port), "--save", ""
            )
            print(f"redis    {HOST}:{redis_port}  ({redis.server})", flush=True)
            plan = write_plan(layout, Path(logs), free_port())
            gateway = await start_forebay(started, plan, port, redis_port)
            await until_ready(http, gateway, within=serve.READY_WITHIN)
            print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
            await ask(http, gateway, model, QUESTION)
            if not once:
                advise(gateway, model, redis, redis_port)
                sys.stdout.flush()
                await asyncio.Event().wait()


if __name__ == "__main__":
    command(run, name="run_vllm", about=__doc__)
