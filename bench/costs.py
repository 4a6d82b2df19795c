"""An engine's costs as files keep them: what `bench calibrate` and `forebay recalibrate` write."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from bench.engine import EngineSpec


class UnknownCosts(ValueError):
    """The file holds no costs that are known here."""


def told(spec: EngineSpec, overhead: float) -> dict[str, float]:
    """In the units of bench.fake_vllm's flags; `overhead` are the seconds before the engine."""
    return {
        "overhead_ms": overhead * 1e3,
        "step_ms": spec.step_base * 1e3,
        "prefill_us": spec.prefill_per_token * 1e6,
        "decode_us": spec.decode_per_seq * 1e6,
        "attention_ns": spec.attention * 1e9,
    }


def read(path: Path, limits: EngineSpec) -> EngineSpec:
    """`limits` with the costs of the file's `summary`. Raises UnknownCosts, and OSError."""
    try:
        summary: Mapping[str, Any] = orjson.loads(path.read_bytes())["summary"]
        return replace(
            limits,
            step_base=float(summary["step_ms"]) / 1e3,
            prefill_per_token=float(summary["prefill_us"]) / 1e6,
            decode_per_seq=float(summary["decode_us"]) / 1e6,
            attention=float(summary["attention_ns"]) / 1e9,
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise UnknownCosts(f"{path.name} holds no engine's costs: {error!r}") from error
