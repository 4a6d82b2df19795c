"""Gateways made for language models: vllm-router, sglang-router, LiteLLM."""

import json

from bench.peers.place import HOST, Place, program


def vllm_router(place: Place) -> list[str]:
    """Before one engine round robin: its default policy asks the engine twice more for each
    request. Before several the default, which knows prefixes and load."""
    policy = "cache_aware" if place.others else "round_robin"
    return [
        *(program("vllm-router"), "--host", HOST, "--port", str(place.port)),
        *("--worker-urls", *place.urls, "--policy", policy),
        *("--prometheus-port", str(place.port + 1), "--log-level", "warning"),
    ]


def sglang_router(place: Place) -> list[str]:
    """As vllm-router, of which it is the ancestor."""
    policy = "cache_aware" if place.others else "round_robin"
    return [
        *(program("sglang-router"), "launch", "--host", HOST, "--port", str(place.port)),
        *("--worker-urls", *place.urls, "--policy", policy),
        *("--prometheus-port", str(place.port + 1), "--log-level", "warn"),
    ]


def litellm(place: Place) -> list[str]:
    """The proxy with its rule for unequal load, no key, and no look-ups on the network."""
    models = [
        {
            "model_name": place.model,
            "litellm_params": {
                "model": f"hosted_vllm/{place.model}",
                "api_base": f"{url}/v1",
                "api_key": "none",
            },
        }
        for url in place.urls
    ]
    document = {"model_list": models, "router_settings": {"routing_strategy": "least-busy"}}
    configuration = place.folder / "litellm.yaml"
    configuration.write_text(json.dumps(document))  # JSON is YAML, too
    return [
        "env",
        *("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true",),
        *("LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR"),
        *(program("litellm"), "--config", str(configuration), "--host", HOST),
        *("--port", str(place.port), "--num_workers", "1", "--telemetry", "False"),
    ]
