"""`forebay tune …`: the flags of an engine, found by `python -m bench tune`."""

import typer

from gateway.commands.bench import hand_over


def tune(context: typer.Context) -> None:
    """Find an engine's flags by measuring: `forebay tune --help`."""
    hand_over("bench", ["tune", *context.args])
