"""`forebay recalibrate`: engine costs and the class bound anew from the request log, as a proposal
or, with --apply, on trial (`trying`). `bench.recalibrate` does the reckoning.
"""

import time
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from gateway.commands.shared import (
    LOCAL_REDIS,
    NameOption,
    RedisOption,
    give_up,
    seconds,
    with_redis,
)
from gateway.commands.trying import Site, try_change
from gateway.config import Config, read_file
from gateway.control import desk
from gateway.recalibration.proposal import NoProposal, ask

FILES = ("*.jsonl", "*.jsonl.gz")
"""The request logs of a folder."""


def recalibrate(
    *,
    log: Annotated[
        list[Path],
        typer.Option(help="The request log, or a folder of them; repeatable, .gz too."),
    ],
    since: Annotated[str, typer.Option(help="How far back to learn from: 24h, 7d.")] = "7d",
    redis: RedisOption = LOCAL_REDIS,
    config: Annotated[
        Path | None, typer.Option(help="A gateway's file in place of Redis; nothing is applied.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the change, on trial.")] = False,
    watch: Annotated[
        str, typer.Option(help="How long the trial is, and the time before to compare with.")
    ] = "1h",
    result: Annotated[
        Path, typer.Option(help="The costs, for `forebay capacity --engine` and the next time.")
    ] = Path("engine-costs.json"),
    max_num_batched_tokens: Annotated[int, typer.Option(help="As engines are started.")] = 2048,
    kv_tokens: Annotated[int, typer.Option(help="Tokens in their KV cache.")] = 524_288,
    name: NameOption = None,
) -> None:
    """Re-fit engine costs and the class bound to the request log; propose, or try, what follows."""
    options = [
        f"--max-num-batched-tokens={max_num_batched_tokens}",
        f"--kv-tokens={kv_tokens}",
    ]
    try:
        span = seconds("--watch", watch)
        options.append(f"--since={time.time() - seconds('--since', since)}")
        if config is not None and apply:
            raise ValueError("--apply needs Redis: leave --config away")
        settings = _file(config) if config is not None else _in_force(redis)
        site = Site(redis, name, tuple(logs(log)))
        changes = ask(settings, site.logs, result, options)
    except (NoProposal, OSError, ValueError) as failed:
        give_up(str(failed))
    for change in changes:
        typer.echo(f"{change.key} {change.field}: {change.before} → {change.after}: {change.why}")
        if apply:
            try_change(change, site, span)
    if changes and not apply:
        typer.echo("nothing was changed: --apply does it, on trial")


def logs(paths: list[Path]) -> list[Path]:
    """The files themselves, and those of folders by their names. Raises ValueError when a folder
    has none."""
    found: list[Path] = []
    for path in paths:
        inside = [one for pattern in FILES for one in path.glob(pattern)] if path.is_dir() else []
        if path.is_dir() and not inside:
            raise ValueError(f"there is no request log in {path}: {' or '.join(FILES)}")
        found += sorted(inside) if path.is_dir() else [path]
    return found


def _file(path: Path) -> Config:
    document = read_file(path)
    try:
        return Config.model_validate({"backends": {}} | document)
    except ValidationError as error:
        raise ValueError(f"{path}: {error}") from error


def _in_force(redis: str) -> Config:
    return with_redis(redis, desk.look).effective()
