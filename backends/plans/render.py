"""A plan as text: a command line, compose services, Kubernetes containers. Pure.

Reasons travel as comments, so that whoever meets a flag in a year knows why it is there. The YAML
is written here and not by a library, because none of them writes comments; strings are JSON's,
which YAML reads.
"""

import json
import shlex
from collections.abc import Iterator, Mapping

from backends.plans.model import Engine, Flag, Plan

IMAGE = "vllm/vllm-openai:v0.32.0"
PORT = 8000
"""Inside its container every engine listens here."""


def flags(plan: Plan) -> str:
    """One command line per engine, ready for a shell."""
    blocks = [*(f"# {note}" for note in plan.notes)]
    for engine in plan.engines:
        variables = "".join(
            f"{name}={shlex.quote(value)} " for name, value in engine.variables().items()
        )
        lines = [f"# {engine.name}: {', '.join(engine.classes) or 'every class'}"]
        lines += [f"#   {_name(flag)}: {flag.reason}" for flag in engine.flags]
        lines += [f"#   {item.name}: {item.reason}" for item in engine.environment]
        options = " \\\n  ".join(shlex.join(flag.arguments()) for flag in engine.flags)
        command = shlex.join([*plan.command, engine.model, "--port", str(engine.port)])
        start = f"{variables}{command}"
        blocks.append("\n".join([*lines, f"{start} \\\n  {options}" if options else start]))
    return "\n\n".join(blocks) + "\n"


def compose(plan: Plan) -> str:
    """Services for a compose file."""
    lines = [*(f"# {note}" for note in plan.notes), "services:"]
    for engine in plan.engines:
        lines += [f"  {engine.name}:", f"    image: {_text(IMAGE)}", "    command:"]
        lines += [f"      {line}" for line in _arguments(engine)]
        lines += _mapping(_variables(engine), engine, indent="    ")
        lines += [f"    ports: [{_text(f'{engine.port}:{PORT}')}]", "    ipc: host"]
        lines += _devices(engine)
    return "\n".join(lines) + "\n"


def kubernetes(plan: Plan) -> str:
    """Containers for pod templates, one document per engine."""
    documents = []
    for engine in plan.engines:
        lines = [f"# {note}" for note in plan.notes]
        lines += [f"name: {engine.name}", f"image: {_text(IMAGE)}", "args:"]
        lines += [f"  {line}" for line in _arguments(engine)]
        reasons = {item.name: item.reason for item in engine.environment}
        if variables := _variables(engine):
            lines.append("env:")
        for name, value in variables.items():
            lines.append(f"  - name: {name}  # {reasons[name]}")
            lines.append(f"    value: {_text(value)}")
        lines.append(f"ports: [{{ name: http, containerPort: {PORT} }}]")
        if engine.gpus:
            lines.append(f"resources: {{ limits: {{ nvidia.com/gpu: {len(engine.gpus)} }} }}")
        documents.append("\n".join(lines) + "\n")
    return "---\n".join(documents)


FORMATS = {"flags": flags, "compose": compose, "kubernetes": kubernetes}


def _arguments(engine: Engine) -> Iterator[str]:
    """The items of a container's arguments. The image's entry point is `vllm serve`."""
    yield f"- {_text(engine.model)}"
    yield f"- {_text(f'--port={PORT}')}"
    for flag in engine.flags:
        yield f"- {_text('='.join(flag.arguments()))}  # {flag.reason}"


def _variables(engine: Engine) -> dict[str, str]:
    """Without the devices: a container runtime hands those out."""
    return {item.name: item.value for item in engine.environment}


def _mapping(values: Mapping[str, str], engine: Engine, indent: str) -> Iterator[str]:
    reasons = {item.name: item.reason for item in engine.environment}
    if values:
        yield f"{indent}environment:"
    for name, value in values.items():
        yield f"{indent}  {name}: {_text(value)}  # {reasons[name]}"


def _devices(engine: Engine) -> Iterator[str]:
    if engine.gpus:
        ids = ", ".join(_text(str(gpu)) for gpu in engine.gpus)
        yield "    deploy:"
        yield "      resources:"
        yield "        reservations:"
        yield f"          devices: [{{ driver: nvidia, device_ids: [{ids}], capabilities: [gpu] }}]"


def _name(flag: Flag) -> str:
    return flag.arguments()[0]


def _text(value: str) -> str:
    return json.dumps(value)
