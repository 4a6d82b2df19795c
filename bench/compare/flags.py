"""The options of the comparing commands: their types and what the help says of them."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _option(about: str) -> Any:
    return typer.Option(help=about)


Peers = Annotated[str, _option("Which, separated by commas; `direct` is none.")]
Scenario = Annotated[str, _option("hol, burst, chat: separated by commas.")]
Rounds = Annotated[int, typer.Option(help="How often each peer has its turn.", min=1)]
Seconds = Annotated[float, typer.Option(help="Of each scenario in each turn.", min=1)]
Backend = Annotated[
    list[str] | None, _option("A server that runs already, instead of simulated ones; repeatable.")
]
Model = Annotated[str | None, _option("Theirs; default: the first one served.")]
Tokenizer = Annotated[Path | None, _option("Its directory; default: as served.")]
PrefillUs = Annotated[
    float | None,
    _option("Microseconds that a prompt token costs them: for the loads."),
]
Real = Annotated[bool, typer.Option("--real", help="Start a real vLLM on the CPU for it.")]
Json = Annotated[Path | None, _option("Write the result here.")]
Pictures = Annotated[Path | None, _option("Write PNG files into this directory.")]
Install = Annotated[
    Path | None, typer.Option("--install", help="Only set up peers from PyPI, in this directory.")
]
