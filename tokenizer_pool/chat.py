"""From a chat request's fields to the prompt's text, as vLLM 0.32 composes them.

Which template, which arguments, which message format: decided here. The shape of messages is
normalised in `messages`, the template languages live in `templates`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from tokenizer_pool.eligibility import (
    MESSAGE_FIELD,
    RESERVED_ARGUMENT,
    RESERVED_TEMPLATE_ARGUMENTS,
    Unproved,
)
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.messages import developer_as_system, normalise
from tokenizer_pool.requests import Document
from tokenizer_pool.templates import TemplateEngine, TemplateRefused, render_open
from tokenizer_pool.tools import Tool, ToolMemo, normalise_tools

# vLLM drops arguments with these values before it renders.
_UNSET: Final = (None, "auto")
_ROLE: Final = itemgetter("role")


class NeedsReference(Exception):
    """Only the reference engine can tell; it is not at hand where the loop must not wait."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One template: its fast engine where proved, its reference engine where it may run.

    Without `fast_floats` the fast engine gets no numbers such as 2.0.
    """

    fast: TemplateEngine | None
    fast_floats: bool
    reference: TemplateEngine | None
    wants_parts: bool
    knows_developer: bool

    def render(self, context: Mapping[str, Any], *, plain: bool, is_open: bool) -> str:
        """The prompt; raises TemplateRefused, or NeedsReference when that engine must decide.

        `plain` says that all values are of kinds on which the engines were compared.
        """
        if self.fast is not None and plain and (self.fast_floats or not _has_floats(context)):
            try:
                return render_open(self.fast, context) if is_open else self.fast.render(context)
            except TemplateRefused:
                # Perhaps a feature that the fast engine lacks: the reference has the last word.
                pass
        if self.reference is None:
            raise NeedsReference
        if is_open:
            return render_open(self.reference, context)
        return self.reference.render(context)


def _has_floats(context: Mapping[str, Any]) -> bool:
    """Is there a whole float in the tools or in a tool call's arguments?"""
    calls = (message.get("tool_calls") for message in context["messages"])
    return _whole_float(context["tools"]) or any(map(_whole_float, calls))


def _whole_float(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, dict):
        return any(map(_whole_float, value.values()))
    return isinstance(value, list) and any(map(_whole_float, value))


@dataclass(frozen=True, slots=True)
class Chat:
    """A model's templates (a separate one for requests with tools, if it has that)."""

    plain: ChatTemplate
    with_tools: ChatTemplate
    special_tokens: dict[str, str]
    memo: ToolMemo = field(default_factory=ToolMemo)

    def prompt(self, document: Document) -> str:
        """The prompt's text for a chat request.

        Raises InvalidRequest, Unproved (not known to be vLLM's reading), TemplateRefused, or
        NeedsReference.
        """
        values = document.values
        tools = self._tools(document)
        template = self.plain if tools is None else self.with_tools
        conversation = normalise(values["messages"], parts=template.wants_parts)
        if not template.knows_developer and "developer" in map(_ROLE, conversation):
            conversation = developer_as_system(conversation)
        arguments = _arguments(values)
        context = {
            **self.special_tokens,
            **arguments,
            "messages": conversation,
            "tools": tools,
            "documents": _documents(values.get("documents")),
            "add_generation_prompt": values.get("add_generation_prompt", True),
        }
        is_open = bool(values.get("continue_final_message"))
        if is_open and context["add_generation_prompt"]:
            raise InvalidRequest(
                "continue_final_message needs add_generation_prompt to be false",
                param="continue_final_message",
            )
        plain = not document.exact and (
            not arguments
            or all(isinstance(value, bool | int | str) for value in arguments.values())
        )
        return template.render(context, plain=plain, is_open=is_open)

    def _tools(self, document: Document) -> list[Tool] | None:
        tools = document.values.get("tools")
        if tools is None:
            return None
        if document.tools is not None:
            return self.memo.normalise(tools, document.tools)
        return normalise_tools(tools)


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    given = values.get("chat_template_kwargs") or {}
    effort = values.get("reasoning_effort")
    if not given and effort is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidRequest("chat_template_kwargs must be an object", param="chat_template_kwargs")
    if not RESERVED_TEMPLATE_ARGUMENTS.isdisjoint(given):
        raise Unproved(RESERVED_ARGUMENT)
    arguments = {name: value for name, value in given.items() if value not in _UNSET}
    if effort is not None:
        if not isinstance(effort, str):
            raise InvalidRequest("reasoning_effort must be a string", param="reasoning_effort")
        arguments["reasoning_effort"] = effort
        if "enable_thinking" not in given:
            arguments["enable_thinking"] = effort != "none"
    return arguments


def _documents(documents: Any) -> list[dict[str, str]] | None:
    if documents is None:
        return None
    if not isinstance(documents, list):
        raise InvalidRequest("documents must be a list", param="documents")
    for document in documents:
        if not isinstance(document, dict) or not all(
            isinstance(value, str) for value in document.values()
        ):
            raise Unproved(MESSAGE_FIELD)
    return documents
