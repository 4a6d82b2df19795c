"""The command: `python -m bench.fake_vllm`. Flags that vLLM has are named as vLLM's."""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from bench.engine import EngineSpec
from bench.fake_vllm.faults import Mode
from bench.fake_vllm.options import TOKENIZER, Options
from bench.fake_vllm.server import running

MILLISECOND = 1e-3


def parser() -> argparse.ArgumentParser:
    defaults, engine = Options(), EngineSpec()
    flags = argparse.ArgumentParser(prog="python -m bench.fake_vllm", description=__doc__)
    add = flags.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0 takes a free one, named in the first line")
    add("--served-model-name", default=defaults.model)
    add("--tokenizer", type=Path, default=TOKENIZER, help="a directory with tokenizer.json")
    add("--max-model-len", type=int, default=defaults.max_model_len)
    add("--max-num-seqs", type=int, default=engine.max_num_seqs)
    add("--max-num-batched-tokens", type=int, default=engine.max_num_batched_tokens)
    add("--long-prefill-token-threshold", type=int, default=0)
    add("--max-num-queued-reqs", type=int)
    add("--kv-tokens", type=int, default=engine.kv_tokens, help="size of the KV cache")
    add("--no-enable-prefix-caching", action="store_true")
    add("--prefill-us", type=float, default=100.0, help="microseconds for a prompt token")
    add("--decode-us", type=float, default=0.0, help="microseconds a step for each answer")
    add("--step-ms", type=float, default=0.0, help="milliseconds that each step takes at least")
    add("--attention-ns", type=float, default=0.0, help="nanoseconds for a pair of tokens")
    add("--cold-ms", type=float, default=0.0, help="extra milliseconds of a cold engine's step")
    add("--cold-after", type=float, default=float("inf"), help="seconds of idleness that cool it")
    add("--keep-alive", type=float, default=defaults.keep_alive, help="seconds")
    add("--fail", type=Mode, default=Mode.NONE, choices=list(Mode))
    return flags


def options(args: argparse.Namespace) -> Options:
    """Raises ValueError for an engine that cannot be."""
    engine = EngineSpec(
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        long_prefill_token_threshold=args.long_prefill_token_threshold,
        kv_tokens=args.kv_tokens,
        step_base=args.step_ms * MILLISECOND,
        prefill_per_token=args.prefill_us * 1e-6,
        decode_per_seq=args.decode_us * 1e-6,
        attention=args.attention_ns * 1e-9,
        cold_step=args.cold_ms * MILLISECOND,
        cold_after=args.cold_after,
    )
    return Options(
        model=args.served_model_name,
        tokenizer=args.tokenizer.resolve(),
        max_model_len=args.max_model_len,
        engine=engine,
        prefix_caching=not args.no_enable_prefix_caching,
        max_num_queued_reqs=args.max_num_queued_reqs,
        keep_alive=args.keep_alive,
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
