"""Rendering a chat template: the reference engine (Jinja's sandbox) and the fast one (minijinja).

Both render as transformers does: trimmed blocks, loop controls, `raise_exception`,
`strftime_now`, a `tojson` without HTML escapes, the `generation` block ignored. Which engine
serves a model is decided elsewhere (parity); messages are normalised elsewhere (messages).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn, Protocol

import jinja2
import jinja2.ext
import minijinja
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenizer_pool.content import wants_parts
from tokenizer_pool.tools import Tool, plain_json

# Instructions that one render may take in the fast engine. Qwen3's template needs 64 for each
# message; one that an argument makes loop for ever is stopped after some 30 ms.
_FUEL: Final = 1_000_000
_NAME: Final = "chat"
_CONTINUE: Final = "CONTINUE_FINAL_MESSAGE_TAG "


class TemplateRefused(Exception):
    """The template cannot render this conversation, or refused it by `raise_exception`."""


class TemplateEngine(Protocol):
    """One compiled chat template."""

    name: ClassVar[str]

    def render(self, context: Mapping[str, Any]) -> str:
        """The prompt; raises TemplateRefused."""
        ...


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant said, for training; here its body is enough."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _tojson(  # noqa: PLR0917 - the filter's published signature
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if not (ensure_ascii or indent or separators or sort_keys):
        return value.json if type(value) is Tool else plain_json(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=None if separators is None else (separators[0], separators[1]),
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    # Local time, as in transformers: a template that prints today's date gets ours.
    return datetime.now().strftime(pattern)  # noqa: DTZ005


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def template_wants_parts(source: str) -> bool:
    """Does the template loop over content parts? False also when it cannot be parsed."""
    try:
        return wants_parts(_environment().parse(source))
    except jinja2.TemplateError:
        return False


class ReferenceTemplate:
    """Jinja2 in its immutable sandbox: what vLLM runs, and slow."""

    name: ClassVar[str] = "jinja2"

    def __init__(self, source: str) -> None:
        """Raises TemplateRefused when the source is not a template."""
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateRefused(str(error)) from error

    def render(self, context: Mapping[str, Any]) -> str:
        try:
            return self._template.render(context)
        # A template is foreign code and may fail as any Python expression may.
        except (
            jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError,
            TypeError, ValueError,
        ) as error:  # fmt: skip
            raise TemplateRefused(str(error)) from error


class FastTemplate:
    """minijinja: the same language in Rust, with a bound on the work of one render."""

    name: ClassVar[str] = "minijinja"

    def __init__(self, source: str) -> None:
        """Raises TemplateRefused when minijinja cannot compile the source."""
        self._environment = minijinja.Environment(
            templates={_NAME: source},
            filters={"tojson": _tojson},
            globals={"raise_exception": _raise_exception, "strftime_now": _strftime_now},
            trim_blocks=True,
            lstrip_blocks=True,
            undefined_behavior="lenient",
            auto_escape_callback=_no_escape,
            debug=False,
            fuel=_FUEL,
            pycompat=True,
        )
        try:
            self._environment.undeclared_variables_in_template(_NAME)
        except minijinja.TemplateError as error:
            raise TemplateRefused(str(error)) from error

    def render(self, context: Mapping[str, Any]) -> str:
        try:
            return str(self._environment.render_template(_NAME, **context))
        except (
            minijinja.TemplateError, jinja2.TemplateError, OverflowError, RecursionError, TypeError,
            ValueError,
        ) as error:  # fmt: skip
            raise TemplateRefused(str(error)) from error


def _no_escape(_name: str) -> None:
    return None


def render_open(engine: TemplateEngine, context: Mapping[str, Any]) -> str:
    """Render so that the final message stays open for the model to continue.

    A mark is put behind the last message's text, and the prompt ends where the mark comes out
    (transformers' `continue_final_message`). Raises TemplateRefused when it does not come out.
    """
    *before, last = context["messages"]
    content = last.get("content")
    if isinstance(content, list):
        if not content:
            raise TemplateRefused("the final message has no text to continue")
        text = content[-1]["text"]
        marked: Any = [*content[:-1], content[-1] | {"text": text + _CONTINUE}]
    elif isinstance(content, str):
        text = content
        marked = text + _CONTINUE
    else:
        raise TemplateRefused("the final message has no text to continue")
    prompt = engine.render({**context, "messages": [*before, last | {"content": marked}]})
    at = prompt.rfind(_CONTINUE.strip())
    if at < 0 or text.strip() not in prompt:
        raise TemplateRefused("the final message does not appear in the prompt")
    if prompt.startswith(_CONTINUE, at):
        return prompt[:at]
    return prompt[:at].rstrip()
