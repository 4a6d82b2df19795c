"""The JSON documents of a run and of a sweep. Their schema: bench/data/schemas, docs/bench.md."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.environment import environment
from bench.load.session import Outcome, Settings
from bench.load.summary import Objective, detail, flat

SCHEMA = 1
_SWEPT = ("ttft_ms_p50", "ttft_ms_p99", "goodput_per_s", "requests_per_s", "errors")


def of_run(settings: Settings, outcome: Outcome, objective: Objective) -> dict[str, Any]:
    """`summary`, `detail`, what was asked for (`run`), and the environment."""
    found = detail(outcome.samples, outcome.effort, objective)
    run = asdict(settings) | {
        "api_key": None,
        "model": outcome.served.model,
        "tokenizer": str(outcome.served.tokenizer),
        "tokenizer_guessed": outcome.served.guessed,
        "template_tokens": outcome.overhead,
        "left_out": outcome.left_out,
        "interrupted": outcome.interrupted,
        "objective": asdict(objective),
    }
    return {
        "schema": SCHEMA,
        "summary": flat(found),
        "detail": found,
        "run": run,
        "environment": environment(),
    }


def of_sweep(documents: Mapping[float, dict[str, Any]]) -> dict[str, Any]:
    """`detail.steps` has each run's detail with its rate; `summary` is named after the rates."""
    steps = [{"rate": rate, **document["detail"]} for rate, document in documents.items()]
    summary = {
        f"rate_{rate:g}_{name}": document["summary"][name]
        for rate, document in documents.items()
        for name in _SWEPT
        if name in document["summary"]
    }
    return {
        "schema": SCHEMA,
        "summary": summary,
        "detail": {"steps": steps},
        "run": documents[max(documents)]["run"],
        "environment": environment(),
    }
