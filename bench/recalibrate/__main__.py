"""`python -m bench.recalibrate`: what `forebay recalibrate` starts to do the reckoning."""

import typer

from bench.recalibrate.command import recalibrate

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(recalibrate)

if __name__ == "__main__":
    app(prog_name="bench.recalibrate")
