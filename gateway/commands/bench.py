"""`forebay bench …`: load tests and measurements, handed on to `python -m bench`.

The gateway never imports that package; it takes this process's place.
"""

import os
import sys
from importlib.util import find_spec
from typing import NoReturn

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Every argument is the other program's, `--help` too."""


def bench(context: typer.Context) -> None:
    """Load tests and measurements: `forebay bench --help`."""
    hand_over("bench", context.args)


def hand_over(module: str, arguments: list[str]) -> NoReturn:
    """Go on as `python -m MODULE ARGUMENTS`."""
    if find_spec("bench") is None:
        raise typer.BadParameter("the package `bench` is not installed here")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606
