"""`forebay capacity …`: how many engines, worked out by `python -m bench.capacity`."""

import typer

from gateway.commands.bench import hand_over


def capacity(context: typer.Context) -> None:
    """How many engines a rate of requests needs: `forebay capacity --help`."""
    hand_over("bench.capacity", context.args)
