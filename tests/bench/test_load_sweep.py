"""A sweep over several rates, and how it ends: what was measured before is kept."""

import asyncio
import csv
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from bench.__main__ import app
from bench.stopping import INTERRUPTED
from tests.bench.conftest import Fake
from tests.bench.schemas import schema
from tests.sites import site

OPTIONS = ("--requests", "3", "--prompt", "50", "--output", "1")


async def sweep(url: str, rates: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", "load", url, "--sweep", rates, *OPTIONS),
        *("--json", folder / "r.json", "--csv", folder / "r.csv"),
        stdout=PIPE,
        stderr=PIPE,
    )


def steps(folder: Path) -> tuple[list[float], list[str]]:
    """The rates in the JSON document, and those in the lines of the CSV."""
    document = json.loads((folder / "r.json").read_text())
    schema("load").validate(document)
    rows = list(csv.DictReader((folder / "r.csv").read_text().splitlines()))
    return [step["rate"] for step in document["detail"]["steps"]], [row["rate"] for row in rows]


@asynccontextmanager
async def then(second: Callable[[], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """A server of which the second run's first question is answered by `second`."""
    asked = 0

    async def models(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({"data": [{"id": "m"}]}) if asked == 1 else await second()

    async def completions(_: web.Request) -> web.Response:
        return web.Response(text="data: [DONE]\n\n")

    server = web.Application()
    server.router.add_get("/v1/models", models)
    server.router.add_post("/v1/chat/completions", completions)
    async with site(server) as url:
        yield url


async def test_the_samples_of_all_steps_are_written_with_their_rates(fake: Fake, tmp_path: Path):
    process = await sweep(fake.server.url, "40,20", tmp_path)
    await process.communicate()
    assert process.returncode == 0
    assert steps(tmp_path) == ([20.0, 40.0], ["20.0"] * 3 + ["40.0"] * 3)


async def test_a_failure_leaves_the_steps_before(tmp_path: Path):
    async def broken() -> web.Response:
        return web.Response(status=500, text="out of order")

    async with then(broken) as url:
        process = await sweep(url, "20,40", tmp_path)
        said, why = await process.communicate()
    assert process.returncode == 1
    assert b"latency against load" in said
    assert b"bench load: " in why
    assert b"out of order" in why
    assert steps(tmp_path) == ([20.0], ["20.0"] * 3)


async def test_ctrl_c_leaves_the_steps_before(tmp_path: Path):
    asked = asyncio.Event()

    async def never() -> web.Response:
        asked.set()
        return await asyncio.Future()

    async with then(never) as url:
        process = await sweep(url, "20,40", tmp_path)
        await asked.wait()
        process.send_signal(signal.SIGINT)
        _, why = await process.communicate()
    assert process.returncode == INTERRUPTED
    assert why.decode() == "bench load: stopped: this is what was measured\n"
    assert steps(tmp_path) == ([20.0], ["20.0"] * 3)


URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("127.0.0.1:23102",), "write it as http://127.0.0.1:23102"),
        (("localhost:23102",), "write it as http://localhost:23102"),
        ((URL, "--also", "ftp://other"), "ftp://other is not the URL of a server"),
        ((URL, "--prompt", "abc"), "uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"),
        ((URL, "--prompt", "lognormal:5"), "not 'lognormal:5'"),
        ((URL, "--output", "lognormal:inf:1"), "not 'lognormal:inf:1'"),
        ((URL, "--output", "5@0"), "not '5@0'"),
        ((URL, "--sweep", "5,x"), "such as 5,10,20; not '5,x'"),
        ((URL, "--sweep", "5,nan"), "not '5,nan'"),
        ((URL, "--json", "/nope/x.json"), "cannot write /nope/x.json: there is no folder /nope"),
        ((URL, "--csv", "/nope/x.csv"), "cannot write /nope/x.csv: there is no folder /nope"),
        ((URL, "--pictures", "/dev/null"), "cannot make the folder /dev/null"),
    ],
)
def test_what_cannot_be_says_what_to_do(options: tuple[str, ...], says: str) -> None:
    ended = CliRunner().invoke(app, ["load", *options])
    assert ended.exit_code == 1
    said = str(ended.exception)
    assert says in said
    assert "\n" not in said


@pytest.mark.parametrize("options", [("--concurrency", "0"), ("--warm-up", "-1")])
def test_what_makes_no_sense_is_refused(options: tuple[str, str]) -> None:
    ended = CliRunner().invoke(app, ["load", URL, *options])
    assert ended.exit_code == 2
    assert options[0] in ended.stderr
