"""The command line: `forebay serve` and what it can be told."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from pydantic import ValidationError

from gateway import __version__
from gateway.commands.bench import SETTINGS, bench
from gateway.commands.capacity import capacity
from gateway.commands.ctl import ctl
from gateway.commands.keys import keys
from gateway.commands.plan import plan
from gateway.commands.recalibrate import recalibrate
from gateway.commands.report import report
from gateway.commands.tune import tune
from gateway.commands.up import up
from gateway.config import Config, parse_backends, read_file
from gateway.lifecycle import StartupError, serve_until_stopped
from gateway.log import LogLevel, configure

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def forebay() -> None:
    """Forebay: a request-shaping gateway in front of vLLM."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def serve(
    backend: Annotated[
        list[str] | None,
        typer.Option(help="A vLLM server: URL, or CLASS=URL for one class. Repeatable."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file with more settings.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    admin_port: Annotated[
        int | None, typer.Option(help="Port of the live page (/ui); without one there is none.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file: the certificate with its chain. Needs --tls-key.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file: the certificate's key.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that serve requests; default: one for each core.")
    ] = None,
    redis: Annotated[str | None, typer.Option(help="Redis with the operators' keys.")] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(help="MODEL=DIR where a model's tokenizer is, when its backend can't say."),
    ] = None,
    request_log: Annotated[
        str | None, typer.Option(help="A file for one JSON line per request; - is stdout.")
    ] = None,
    expose_timings: Annotated[
        bool | None, typer.Option(help="Tell clients class, backend and stages of the TTFT.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What goes to stderr, from there up.")
    ] = LogLevel.INFO,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C, which let streams finish first."""
    given = {
        "host": host,
        "port": port,
        "admin.port": admin_port,
        "http.tls_cert": tls_cert,
        "http.tls_key": tls_key,
        "workers": workers,
        "redis": redis,
        "request_log": request_log,
        "expose_timings": expose_timings,
    }
    try:
        settings = _settings(config, backend or [], tokenizer or [], given)
    except ValidationError as error:
        _give_up("\n".join(_problem(p["loc"], p["msg"]) for p in error.errors()))
    except ValueError as error:
        _give_up(str(error))
    configure(log_level.value)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_until_stopped(settings))
    except StartupError as error:
        _give_up(str(error))


app.command()(plan)
app.add_typer(ctl, name="ctl")
app.add_typer(keys, name="keys")
app.command()(up)


app.command()(report)
app.command()(recalibrate)
app.command(context_settings=SETTINGS, add_help_option=False)(bench)
app.command(context_settings=SETTINGS, add_help_option=False)(capacity)
app.command(context_settings=SETTINGS, add_help_option=False)(tune)


def main() -> None:
    app()


def _settings(
    file: Path | None, backends: list[str], tokenizers: list[str], given: dict[str, Any]
) -> Config:
    """The file's settings with the command line over them. Raises ValueError."""
    document = read_file(file) if file else {}
    for name, value in given.items():
        section, _, setting = name.rpartition(".")
        if value is not None:
            (document.setdefault(section, {}) if section else document)[setting] = value
    if backends:
        document["backends"] = parse_backends(backends)
    document.setdefault("backends", {})
    if tokenizers:
        section = document.setdefault("tokenizer", {})
        section["sources"] = dict(_pair(option) for option in tokenizers)
    return Config.model_validate(document)


def _pair(option: str) -> tuple[str, str]:
    model, separator, location = option.partition("=")
    if not (model and separator and location):
        raise ValueError(f"--tokenizer takes MODEL=DIR, not {option!r}")
    return model, location


def _problem(place: tuple[int | str, ...], message: str) -> str:
    return f"{'.'.join(map(str, place)) or 'settings'}: {message.removeprefix('Value error, ')}"


def _give_up(message: str) -> None:
    typer.secho(f"forebay: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
