"""`python -m bench calibrate`: fit the engine model to a server, and say how far it is off."""

import asyncio
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console

from bench.calibrate.fit import Decode, Fitted, Prefill, fit, flags
from bench.calibrate.heldout import errors, predict
from bench.calibrate.measure import Server, decodes, held_out, prefills
from bench.children import ChildEnded, children
from bench.compare.engines import CompareFailed
from bench.compare.engines import real as real_vllm
from bench.costs import told
from bench.engine import SERIAL, EngineSpec
from bench.environment import environment
from bench.load.discover import LoadFailed
from bench.load.output import write_json
from bench.load.sample import Sample
from bench.vllm_env.build import BuildError


def calibrate(
    backend: Annotated[str | None, typer.Option(help="A vLLM that runs already.")] = None,
    real: Annotated[bool, typer.Option("--real", help="Start a real vLLM on the CPU.")] = False,
    model: Annotated[str | None, typer.Option(help="Default: the first one served.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Default: as served.")] = None,
    prompts: Annotated[
        str, typer.Option(help="Prompt sizes in tokens, ascending.")
    ] = "50,200,500,1000,2000,4000",
    running: Annotated[str, typer.Option(help="How many answers are decoded at once.")] = "1,2,4,8",
    repeats: Annotated[int, typer.Option(help="Of each, at least 1.", min=1)] = 3,
    held_out_requests: Annotated[
        int, typer.Option("--held-out", help="Requests to judge the model by.", min=5)
    ] = 60,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="As the server was started with.", min=1)
    ] = 2048,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Fit prefill and decode costs to a server, and report the model's error on other requests."""
    if (backend is None) is not real:
        raise typer.BadParameter("say either --backend URL or --real")
    try:
        sizes = _numbers(prompts), _numbers(running)
        server = Server(backend or "", model, tokenizer, *sizes, repeats)
        limits = replace(SERIAL, max_num_batched_tokens=max_num_batched_tokens)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_calibrate(server, limits, held_out_requests))
    except (BuildError, ChildEnded, CompareFailed, LoadFailed, ValueError) as failed:
        sys.exit(f"bench calibrate: {failed}")
    document = {"schema": 1, **found, "environment": environment()}
    _show(document)
    if json is not None:
        write_json(json, document)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part) for part in text.split(",")))


async def _calibrate(server: Server, limits: EngineSpec, count: int) -> dict[str, Any]:
    if server.url:
        return await _fitted(server, limits, count)
    with tempfile.TemporaryDirectory(prefix="forebay-calibrate-") as logs:
        async with children(Path(logs)) as started:
            engines = await real_vllm(started, typer.echo)
            own = replace(
                server, url=engines.urls[0], model=engines.model, tokenizer=engines.tokenizer
            )
            return await _fitted(own, limits, count)


async def _fitted(server: Server, limits: EngineSpec, count: int) -> dict[str, Any]:
    alone, together = await prefills(server), await decodes(server)
    fitted = fit(alone, together, limits)
    samples = await held_out(server, fitted, count)
    return report(fitted, alone, together, samples)


def report(
    fitted: Fitted, alone: list[Prefill], together: list[Decode], samples: list[Sample]
) -> dict[str, Any]:
    """`summary`: the costs in the units of bench.fake_vllm's flags, and the errors."""
    predicted = predict(fitted, samples)
    summary = told(fitted.spec, fitted.overhead) | {
        "fit_error_mean": fitted.error,
        "held_out_requests": len(samples),
    }
    summary = {name: round(value, 4) for name, value in summary.items()}
    pairs = [
        {
            "prompt": one.prompt_tokens, "output": one.output_tokens, "ttft_s": one.ttft,
            "ttft_model_s": model.ttft, "e2e_s": one.e2e, "e2e_model_s": model.e2e,
        }
        for one, model in zip(samples, predicted, strict=True)
    ]  # fmt: skip
    return {
        "summary": summary | {f"held_out_{k}": v for k, v in errors(samples, predicted).items()},
        "detail": {
            "prefills": [asdict(one) for one in alone],
            "decodes": [asdict(one) for one in together],
            "held_out": pairs,
            "fake_vllm_flags": flags(fitted),
        },
    }


def _show(document: dict[str, Any]) -> None:
    console = Console()
    for name, value in document["summary"].items():
        console.print(f"{name:36} {value:12,.4f}")
    console.print(f"python -m bench.fake_vllm {document['detail']['fake_vllm_flags']}")
