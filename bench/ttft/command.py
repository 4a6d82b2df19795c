"""`python -m bench ttft --real`: what Forebay makes of a real vLLM's time to first token.

vLLM runs on the CPU with the tiny model, whose engine is nearly free, and every prompt is in its
prefix cache: what remains of the TTFT is mostly vLLM's own preprocessing.
"""

import asyncio
import tempfile
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import aiohttp
import orjson
import typer
from rich.console import Console

from bench.children import ChildEnded, children
from bench.environment import environment
from bench.ttft.chats import SIZES, Size
from bench.ttft.figure import draw
from bench.ttft.measure import alternate, ask, sides_of
from bench.ttft.report import Detail, cell, cell_name, summarise, table
from bench.ttft.setups import SETUPS, SetUp, TtftFailed, start_pair
from bench.vllm_env.build import BuildError, build
from bench.vllm_env.layout import Layout, locate

Cells = dict[Size, tuple[int, ...]]

_EACH: Final[Cells] = dict.fromkeys(SIZES, (1, 16))
_CURVE: Final = (1, 2, 4, 8, 16, 32, 64)
_CURVE_SIZE: Final = SIZES[1]
_QUICK: Final[Cells] = {SIZES[0]: (1,)}


class Part(StrEnum):
    """What is measured of each set-up; `ratios` and `curve` take three minutes each."""

    RATIOS = "ratios"
    CURVE = "curve"
    QUICK = "quick"


CELLS: Final[dict[Part, Cells]] = {
    Part.RATIOS: _EACH,
    Part.CURVE: {_CURVE_SIZE: _CURVE},
    Part.QUICK: _QUICK,
}


async def measure(layout: Layout, setup: SetUp, cells: Cells) -> Detail:
    """Start the set-up, measure its cells, end it. Raises TtftFailed and ChildEnded."""
    detail: Detail = {}
    # A connection each: vLLM closes idle ones while the other side has its turn.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=600)
    with tempfile.TemporaryDirectory(prefix="forebay-ttft-") as logs:
        async with (
            children(Path(logs)) as started,
            aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        ):
            pair = await start_pair(started, http, layout, setup)
            for size, concurrencies in cells.items():
                sides = await sides_of(http, pair, size)
                for side in sides.values():
                    # Twice: into the prefix cache, and past whatever only a second use prepares.
                    await ask(http, side)
                    await ask(http, side)
                for concurrency in concurrencies:
                    name = cell_name(setup.name, size.name, concurrency)
                    detail[name] = cell(await alternate(http, sides, concurrency))
    return detail


async def measure_all(layout: Layout, setups: list[SetUp], part: Part) -> dict[str, Any]:
    """`summary`, `detail` and `not_run` (set-up to reason) of the document."""
    detail: Detail = {}
    not_run = {setup.name: reason for setup in setups if (reason := setup.missing(layout))}
    for setup in setups:
        if setup.name not in not_run:
            detail |= await measure(layout, setup, CELLS[part])
    return {"summary": summarise(detail), "detail": detail, "not_run": not_run}


def ttft(
    real: Annotated[bool, typer.Option(help="Must be said: it takes minutes and 3 GB.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the document here.")] = None,
    setup: Annotated[
        list[str] | None, typer.Option(help="Only this vLLM set-up; repeatable.")
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="Take the model from DIR/tiny: for another vocabulary.")
    ] = None,
    part: Annotated[
        Part,
        typer.Option(
            help="ratios: each size, 1 and 16 clients; curve: 1 to 64, on vLLM's default alone; "
            "quick: one small cell."
        ),
    ] = Part.RATIOS,
    figure: Annotated[Path | None, typer.Option(help="Draw the curve into this PNG.")] = None,
) -> None:
    """Time to first token through Forebay over that of the same real vLLM asked directly."""
    if not real:
        raise typer.BadParameter("only a real vLLM has a preprocessing to measure: say --real")
    every = [each.name for each in SETUPS]
    names = setup or (every if part is Part.RATIOS else ["default"])
    chosen = [each for each in SETUPS if each.name in names]
    if len(chosen) != len(names):
        raise typer.BadParameter(f"set-ups are {', '.join(each.name for each in SETUPS)}")
    layout = locate()
    try:
        build(layout, typer.echo)
        if models is not None:
            layout = replace(layout, models=models.resolve())
        document = asyncio.run(measure_all(layout, chosen, part))
    except ChildEnded as ended:
        typer.echo(f"ttft: {ended}; the end of its log:\n{ended.log}", err=True)
        raise typer.Exit(1) from ended
    except (BuildError, TtftFailed, aiohttp.ClientError) as failed:
        typer.echo(f"ttft: {failed}", err=True)
        raise typer.Exit(1) from failed
    document["environment"] = environment()
    if json is not None:
        json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if figure is not None:
        draw(document["detail"], figure)
    Console().print(table(document["detail"]))
    for name, reason in document["not_run"].items():
        typer.echo(f"{name}: not run, {reason}")
