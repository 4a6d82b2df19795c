"""`python -m bench COMMAND`: the measurements, one command each."""

import typer

from bench.calibrate.command import calibrate
from bench.chaos.command import chaos, leave
from bench.compare.command import compare_command, of_scenario
from bench.control.command import control
from bench.decisions import decisions
from bench.idle.command import idle
from bench.load.command import load
from bench.load.selfcheck import selfcheck
from bench.overhead.command import overhead
from bench.overhead.soak import soak
from bench.overhead.stall import stall
from bench.prefix.command import prefix
from bench.preprocess import preprocess
from bench.report.command import headline, report
from bench.simulate import simulate
from bench.sockets import confirm
from bench.ttft.command import ttft
from bench.tuning.command import tune
from bench.warm.command import warm
from bench.workers.command import workers

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure a server, the scheduler, or a claim of this project."""


app.command()(chaos)
app.command()(control)
app.command()(leave)
app.command()(warm)
app.command()(idle)
app.command()(load)
app.command()(selfcheck)
app.command()(preprocess)
app.command()(simulate)
app.command()(confirm)
app.command()(decisions)
app.command()(ttft)
app.command()(overhead)
app.command()(stall)
app.command()(soak)
app.command()(calibrate)
app.command()(prefix)
app.command()(report)
app.command()(headline)
app.command()(workers)
app.command()(tune)
app.command("compare")(compare_command)
app.command("hol")(
    of_scenario("hol", "Head of line, over sockets: nine short prompts for each of 8,000 tokens.")
)
app.command("burst")(
    of_scenario("burst", "A wave of long prompts into steady short ones, over sockets.")
)

if __name__ == "__main__":
    app()
