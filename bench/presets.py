"""Engine models of known hardware, derived from data sheets; the derivation is the source.

Not measured: a roofline with one efficiency factor. Prefill is bound by compute: two floating
point operations per parameter and token. A decode step is bound by memory: all weights once,
and each sequence's keys and values.
"""

from dataclasses import dataclass

from bench.engine import EngineSpec


@dataclass(frozen=True, slots=True)
class Gpu:
    """Dense bfloat16 operations per second, bytes per second, bytes."""

    flops: float
    bandwidth: float
    memory: float


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters; bytes of keys and values per token; a typical context in tokens."""

    parameters: float
    kv_bytes: int
    context: int = 1500


A100_80GB = Gpu(flops=312e12, bandwidth=2.039e12, memory=80e9)
"""NVIDIA A100 80 GB SXM data sheet: 312 TFLOPS bfloat16, 2,039 GB/s."""

A100_40GB = Gpu(flops=312e12, bandwidth=1.555e12, memory=40e9)
"""NVIDIA A100 40 GB SXM data sheet: the same compute, 1,555 GB/s."""

H100_SXM = Gpu(flops=989e12, bandwidth=3.35e12, memory=80e9)
"""NVIDIA H100 SXM data sheet: 989 TFLOPS bfloat16 dense, 3.35 TB/s."""

LLAMA_8B = Model(parameters=8.03e9, kv_bytes=32 * 8 * 128 * 2 * 2)
"""Llama 3.1 8B's published configuration: 32 layers, 8 key-value heads of 128, bfloat16."""

COMPUTE_EFFICIENCY = 0.55
BANDWIDTH_EFFICIENCY = 0.8
MEMORY_UTILIZATION = 0.9


def engine(gpu: Gpu, model: Model, *, block_tokens: int = 16) -> EngineSpec:
    """vLLM's defaults for limits (256 sequences, 2,048 tokens a step), costs from the roofline."""
    weights = model.parameters * 2
    bandwidth = gpu.bandwidth * BANDWIDTH_EFFICIENCY
    return EngineSpec(
        step_base=weights / bandwidth,
        prefill_per_token=2 * model.parameters / (gpu.flops * COMPUTE_EFFICIENCY),
        decode_per_seq=model.context * model.kv_bytes / bandwidth,
        kv_tokens=int((gpu.memory * MEMORY_UTILIZATION - weights) / model.kv_bytes),
        block_tokens=block_tokens,
    )
