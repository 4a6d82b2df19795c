"""`forebay up PLAN`: the engines of a plan on this node, and the gateway in front of them.

What it is to run engines is in `backends.managed`; here they get a gateway, or registrations that
gateways elsewhere find them by, and the signals: SIGTERM drains and ends all, SIGHUP reads the plan
again and restarts what it changes (everything, if nothing), one engine at a time.
"""

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from backends.discovery.registry import Registration, RegistrySettings
from backends.managed.flags import NodeFlag
from backends.managed.gates import FleetGate, RegisteredGate
from backends.managed.node import Gate, ManagedNode, NotBack
from backends.managed.process import PortTaken
from backends.managed.supervisor import ManagedSettings
from backends.plans import file
from backends.plans.model import Plan
from backends.types import State
from gateway.brain import Brain
from gateway.config import Config, read_file
from gateway.lifecycle import StartupError, serve_until_stopped
from gateway.log import LogLevel, configure
from gateway.tasks import Tasks
from gateway.tuning.carrying import Carrying
from gateway.tuning.memory import FLAG


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for. `config` is None where only engines are wanted."""

    path: Path
    plan: Plan
    settings: ManagedSettings
    config: Config | None
    register: str | None
    drain_grace: float


def up(
    plan: Annotated[Path, typer.Argument(help="A plan file: `forebay plan --format plan`.")],
    engines_only: Annotated[
        bool, typer.Option("--engines-only", help="No gateway on this node.")
    ] = False,
    register: Annotated[
        str | None, typer.Option(help="Redis that gateways elsewhere find these engines in.")
    ] = None,
    engine_host: Annotated[str, typer.Option(help="Where the engines listen.")] = "127.0.0.1",
    engine_grace: Annotated[
        float, typer.Option(help="Seconds that an engine has to end before it is killed.")
    ] = 15.0,
    config: Annotated[Path | None, typer.Option(help="The gateway's settings.")] = None,
    host: Annotated[str | None, typer.Option(help="Where the gateway listens.")] = None,
    port: Annotated[int | None, typer.Option(help="The gateway's port.")] = None,
    redis: Annotated[str | None, typer.Option(help="Redis with the operators' keys.")] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Restart engines with the gpu_memory_utilization that is recommended, one at a "
            "time, in the windows of `utilization.windows`; back if TTFT gets worse.",
        ),
    ] = False,
    expose_timings: Annotated[
        bool | None, typer.Option(help="Tell clients class, backend and stages of the TTFT.")
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What goes to stderr, from there up.")
    ] = LogLevel.INFO,
) -> None:
    """Start a plan's engines and keep them running, with a gateway in front."""
    given: dict[str, Any] = {"host": host, "port": port, "redis": redis}
    given |= {"expose_timings": expose_timings, "apply": apply or None}
    try:
        found = file.read(plan)
        settings = ManagedSettings(found.command, host=engine_host, grace=engine_grace)
        made = None if engines_only else _config(config, found, settings, given)
    except ValueError as error:
        _give_up(str(error))
    grace = made.drain_grace if made else Config.model_fields["drain_grace"].default
    configure(log_level.value)
    order = Order(plan, found, settings, made, register, grace)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(order))
    except (StartupError, PortTaken) as error:
        _give_up(str(error))


async def _run(order: Order) -> None:
    async with ManagedNode(order.plan, order.settings, _print) as node:
        if order.config is not None:
            await serve_until_stopped(
                order.config, beside=lambda brain, tasks: _follow(order, node, brain, tasks)
            )
        else:
            await _engines_alone(order, node)


def _follow(order: Order, node: ManagedNode, brain: Brain, tasks: Tasks) -> None:
    """Restart the engines at SIGHUP, each drained by the gateway before and ready for it after."""

    def ready(name: str) -> bool:
        node.check(name)
        return brain.catalogue.state(name) is State.READY

    gate = FleetGate(brain.fleet, ready=ready, within=order.drain_grace)
    _roll_at_hangup(order, node, gate, tasks)
    engines = NodeFlag(node, gate, FLAG)
    brain.advisor.managed = engines.values
    settings = brain.control
    carrying = Carrying(brain.advisor, engines, lambda: settings.effective.utilization, brain.tuned)
    tasks.spawn("utilization", carrying.run(brain.door.ear))


async def _engines_alone(order: Order, node: ManagedNode) -> None:
    """Run until SIGTERM or SIGINT."""
    stop, tasks = asyncio.Event(), Tasks()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    registrations = (
        {spec.name: Registration(spec, RegistrySettings(order.register)) for spec in node.specs()}
        if order.register
        else {}
    )
    gate = RegisteredGate(node.specs(), registrations, tasks.spawn, within=order.drain_grace)
    tasks.spawn("enter", gate.enter_all())
    _roll_at_hangup(order, node, gate, tasks)
    try:
        await stop.wait()
        await gate.leave_all()
    finally:
        await tasks.stop()


def _roll_at_hangup(order: Order, node: ManagedNode, gate: Gate, tasks: Tasks) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: tasks.spawn("roll", _roll(order, node, gate)))


async def _roll(order: Order, node: ManagedNode, gate: Gate) -> None:
    try:
        plan = file.read(order.path)
        await node.roll(gate, plan if _differs(node, plan) else None)
    except (ValueError, NotBack) as error:
        _print("plan", f"the restart ended early: {error}")


def _differs(node: ManagedNode, plan: Plan) -> bool:
    present = {name: managed.engine for name, managed in node.engines.items()}
    return present != {engine.name: engine for engine in plan.engines}


def _config(
    path: Path | None, plan: Plan, settings: ManagedSettings, given: dict[str, Any]
) -> Config:
    """The gateway's settings with the plan's engines as its backends. Raises ValueError."""
    document = read_file(path) if path else {}
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted.pop("apply", False):
        wanted["utilization"] = document.get("utilization", {}) | {"apply": True}
    document |= wanted
    document["backends"] = document.get("backends", {}) | {
        engine.name: {
            "url": f"http://{settings.host}:{engine.port}",
            "classes": list(engine.classes),
            "limit": engine.limit,
        }
        for engine in plan.engines
    }
    return Config.model_validate(document)


def _print(name: str, line: str) -> None:
    # Whoever read our output may be gone (`forebay up | head`): engines go on, and end, anyway.
    with suppress(BrokenPipeError):
        print(f"{name:>12} | {line}", flush=True)  # noqa: T201 - the engines' own output


def _give_up(message: str) -> None:
    typer.secho(f"forebay up: {message}", fg=typer.colors.RED, err=True)
    sys.exit(2)
