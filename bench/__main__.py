"""`python -m bench COMMAND`: the measurements, one command each."""

import typer

from bench.load.command import load
from bench.preprocess import preprocess

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure a server, the scheduler, or a claim of this project."""


app.command()(load)
app.command()(preprocess)

if __name__ == "__main__":
    app()
