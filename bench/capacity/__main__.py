"""`python -m bench.capacity`: the command on its own, which is what `forebay capacity` starts."""

import typer

from bench.capacity.command import capacity

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command("forebay capacity")(capacity)

if __name__ == "__main__":
    app(prog_name="forebay capacity")
