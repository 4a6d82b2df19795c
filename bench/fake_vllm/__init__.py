"""A server that speaks vLLM 0.32's HTTP API at the pace of the engine model, with no model in it.

`python -m bench.fake_vllm --help`, or in a test:

    async with running(Options()) as fake:
        ... fake.url, fake.faults, fake.engine ...

Not here: how an engine schedules (bench/engine.py).
"""

from bench.fake_vllm.faults import Faults, Mode
from bench.fake_vllm.options import TOKENIZER, Options
from bench.fake_vllm.server import Running, running

__all__ = ["TOKENIZER", "Faults", "Mode", "Options", "Running", "running"]
