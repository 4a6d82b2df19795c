"""`python -m bench COMMAND`: the measurements, one command each."""

import typer

from bench.calibrate.command import calibrate
from bench.compare.command import compare_command
from bench.decisions import decisions
from bench.load.command import load
from bench.load.selfcheck import selfcheck
from bench.overhead.command import overhead
from bench.prefix.command import prefix
from bench.preprocess import preprocess
from bench.simulate import simulate
from bench.ttft.command import ttft
from bench.workers.command import workers

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure a server, the scheduler, or a claim of this project."""


app.command()(load)
app.command()(selfcheck)
app.command()(preprocess)
app.command()(simulate)
app.command()(decisions)
app.command()(ttft)
app.command()(overhead)
app.command()(calibrate)
app.command()(prefix)
app.command()(workers)
app.command("compare")(compare_command)

if __name__ == "__main__":
    app()
