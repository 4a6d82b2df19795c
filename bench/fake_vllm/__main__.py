"""The command: `python -m bench.fake_vllm`. Flags that vLLM has are named as vLLM's."""

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

from bench.engine import SERIAL
from bench.fake_vllm.faults import Mode
from bench.fake_vllm.options import TOKENIZER, Options
from bench.fake_vllm.server import running
from bench.presets import A100_80GB, H100_SXM, LLAMA_8B, engine

PRESETS = {
    "serial": SERIAL,
    "a100-llama-8b": engine(A100_80GB, LLAMA_8B),
    "h100-llama-8b": engine(H100_SXM, LLAMA_8B),
}

ENGINE_FLAGS = {
    "max-num-seqs": (int, 1, "sequences that run at once"),
    "max-num-batched-tokens": (int, 1, "tokens that a step computes at most"),
    "long-prefill-token-threshold": (int, 1, "of these for one prompt at most; 0 is no limit"),
    "kv-tokens": (int, 1, "size of the KV cache"),
    "step-ms": (float, 1e-3, "milliseconds that each step takes at least"),
    "prefill-us": (float, 1e-6, "microseconds for a prompt token"),
    "decode-us": (float, 1e-6, "microseconds a step for each answer"),
    "attention-ns": (float, 1e-9, "nanoseconds for a pair of tokens"),
    "cold-ms": (float, 1e-3, "extra milliseconds of a cold engine's step"),
    "cold-after": (float, 1, "seconds of idleness that cool it"),
}
"""Type, unit in tokens or seconds, meaning; what is not given is the preset's."""

FIELDS = {
    "step-ms": "step_base",
    "prefill-us": "prefill_per_token",
    "decode-us": "decode_per_seq",
    "attention-ns": "attention",
    "cold-ms": "cold_step",
}
"""Flags that are named for their unit, by their field of EngineSpec."""


def parser() -> argparse.ArgumentParser:
    defaults = Options()
    flags = argparse.ArgumentParser(prog="python -m bench.fake_vllm", description=__doc__)
    add = flags.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0 takes a free one, named in the first line")
    add("--model", default=defaults.model, help="here, only the served name where none is given")
    add("--served-model-name")
    add("--tokenizer", type=Path, default=TOKENIZER, help="a directory with tokenizer.json")
    add("--max-model-len", type=int, default=defaults.max_model_len)
    add("--max-num-queued-reqs", type=int)
    add("--no-enable-prefix-caching", action="store_true")
    add("--keep-alive", type=float, default=defaults.keep_alive, help="seconds")
    add("--lora-modules", nargs="*", default=(), help="names of adapters")
    add("--media-tokens", type=int, help="tokens of a picture or sound; without it, text only")
    add("--gpu-memory-utilization", type=float, help="told in /metrics; changes nothing here")
    add("--runner", default="generate", choices=("generate", "pooling"))
    add("--fail", type=Mode, default=Mode.NONE, choices=list(Mode))
    add(
        "--preset",
        default="serial",
        choices=list(PRESETS),
        help="the GPUs are derived in bench/presets.py",
    )
    for name, (kind, _, meaning) in ENGINE_FLAGS.items():
        add(f"--{name}", type=kind, help=meaning)
    return flags


def options(args: argparse.Namespace) -> Options:
    """Raises ValueError for an engine that cannot be."""
    given = {}
    for name, (_, unit, _) in ENGINE_FLAGS.items():
        value = getattr(args, name.replace("-", "_"))
        if value is not None:
            given[FIELDS.get(name, name.replace("-", "_"))] = value * unit
    return Options(
        model=args.served_model_name or args.model,
        tokenizer=args.tokenizer.resolve(),
        max_model_len=args.max_model_len,
        engine=replace(PRESETS[args.preset], **given),
        prefix_caching=not args.no_enable_prefix_caching,
        max_num_queued_reqs=args.max_num_queued_reqs,
        keep_alive=args.keep_alive,
        adapters=tuple(args.lora_modules),
        media_tokens=args.media_tokens,
        pooling=args.runner == "pooling",
        gpu_memory_utilization=args.gpu_memory_utilization,
    )


async def serve(args: argparse.Namespace) -> None:
    """Say where it listens, in one JSON line, and serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(options(args), host=args.host, port=args.port) as server:
        server.app.fail(args.fail)
        print(json.dumps({"url": server.url, "port": server.port}), flush=True)
        await stop.wait()


def main() -> None:
    args = parser().parse_args()
    try:
        asyncio.run(serve(args))
    except (OSError, ValueError) as error:
        sys.exit(f"fake_vllm: {error}")


if __name__ == "__main__":
    main()
