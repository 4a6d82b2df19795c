"""`/metrics` under vLLM's names: the ones that say how loaded the engine is."""

from bench.engine import Engine
from bench.fake_vllm.options import Options


def exposition(engine: Engine, options: Options, finished: dict[str, int]) -> str:
    """The text format; `finished` counts requests by their finish reason, aborted ones too."""
    labels = f'engine="0",model_name="{options.model}"'
    gauges = {
        "num_requests_running": engine.running,
        "num_requests_waiting": engine.waiting,
        "kv_cache_usage_perc": engine.kv_usage,
    }
    counters = {
        "prefix_cache_queries": engine.prompt_tokens,
        "prefix_cache_hits": engine.cached_tokens,
        "num_preemptions": engine.preemptions,
        "prompt_tokens": engine.prompt_tokens,
        "generation_tokens": engine.generated_tokens,
    }
    lines = []
    for name, value in gauges.items():
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{labels}}} {value}"]
    for name, value in counters.items():
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{labels}}} {value}"]
    lines.append("# TYPE vllm:request_success counter")
    for reason, count in finished.items():
        more = f'{labels},finished_reason="{reason}"'
        lines.append(f"vllm:request_success_total{{{more}}} {count}")
    lines += ["# TYPE vllm:cache_config_info gauge", _cache_config(engine, options)]
    return "\n".join(lines) + "\n"


def _cache_config(engine: Engine, options: Options) -> str:
    blocks = engine.spec.kv_tokens // engine.spec.block_tokens
    labels: dict[str, float] = {"block_size": engine.spec.block_tokens, "num_gpu_blocks": blocks}
    if options.gpu_memory_utilization is not None:
        labels |= {"gpu_memory_utilization": options.gpu_memory_utilization}
    told = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"vllm:cache_config_info{{{told}}} 1"
