"""How a vLLM server is started on the CPU here: its command line and its settings.

Starting, watching and ending the process is the caller's.
"""

from pathlib import Path

from bench.vllm_env.layout import Layout

# A server that takes longer has failed: 35 s on two idle cores, 60 s beside other work.
READY_WITHIN = 240.0


def command(layout: Layout, model: Path, port: int, *, max_model_len: int) -> list[str]:
    """The argument list of a server on 127.0.0.1; its model is named after the folder."""
    return [
        str(layout.python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        *("--model", str(model)),
        *("--served-model-name", model.name),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--max-model-len", str(max_model_len)),
        # bfloat16, the default, is emulated on CPUs without AVX-512 and five times slower.
        *("--dtype", "float32"),
        "--enforce-eager",
        "--enable-auto-tool-choice",
        *("--tool-call-parser", "hermes"),
    ]


def settings() -> dict[str, str]:
    """Environment variables that keep the server offline, small, and free of pauses to compile."""
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Gigabytes for the KV cache: a million tokens of the tiny model.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # Otherwise the first request with logprobs waits 16 s for torch.compile.
        "TORCH_COMPILE_DISABLE": "1",
    }
