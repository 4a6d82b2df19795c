"""`/v1/responses` and `/v1/messages` of a simulated vLLM: other shapes of a chat.

A request is turned into the chat that has the same prompt, the answer's tokens into the events of
its API. Written without looking at `tokenizer_pool`, so that the two can be checked against each
other; only text, tool calls and tool results are understood.
"""

from dataclasses import replace
from typing import Any

import orjson

from bench.fake_vllm.answers import Answer
from bench.fake_vllm.asks import Ask, Reader
from bench.fake_vllm.errors import Refused
from bench.fake_vllm.wire import Base

Body = dict[str, Any]


def responses_ask(reader: Reader, body: Body, history: list[Body]) -> Ask:
    """What a `/v1/responses` body asks for, after the messages of the response it goes on from."""
    chat = {"messages": history + response_messages(body), "stream": body.get("stream")}
    if body.get("tools"):
        chat["tools"] = [{"type": "function", "function": tool} for tool in body["tools"]]
    chat["max_tokens"] = body.get("max_output_tokens")
    return replace(reader.chat(chat), include_usage=True)


def response_messages(body: Body) -> list[Body]:
    given = body.get("input")
    messages: list[Body] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise Refused("1 validation error:\n  'input' must be a string or a list.", "body.input")
    return messages + [_item(item) for item in given]


def _item(item: Body) -> Body:
    kind = item.get("type", "message")
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    if kind != "message":
        raise Refused(f"Unsupported input item type: {kind}", "input")
    return {"role": item.get("role"), "content": item.get("content")}


def messages_ask(reader: Reader, body: Body) -> Ask:
    """What a `/v1/messages` body asks for."""
    if not isinstance(body.get("max_tokens"), int):
        raise Refused("1 validation error:\n  'max_tokens' is required.", "body.max_tokens")
    return replace(reader.chat(anthropic_chat(body)), include_usage=True)


def anthropic_chat(body: Body) -> Body:
    given = body.get("messages")
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise Refused("1 validation error:\n  'messages' must be a list.", "body.messages")
    messages: list[Body] = []
    if system := body.get("system"):
        text = system if isinstance(system, str) else "".join(part["text"] for part in system)
        messages.append({"role": "system", "content": text})
    for message in given:
        messages += _said(message)
    chat = {"messages": messages} | {name: body.get(name) for name in ("stream", "max_tokens")}
    if tools := body.get("tools"):
        chat["tools"] = [_tool(tool) for tool in tools]
    return chat


def _said(message: Body) -> list[Body]:
    content = message.get("content")
    if not isinstance(content, list):
        return [{"role": message.get("role"), "content": content}]
    results = [
        {"role": "tool", "tool_call_id": part["tool_use_id"], "content": part["content"]}
        for part in content
        if part["type"] == "tool_result"
    ]
    texts = [part for part in content if part["type"] == "text"]
    calls = [
        {
            "id": part["id"],
            "type": "function",
            "function": {"name": part["name"], "arguments": orjson.dumps(part["input"]).decode()},
        }
        for part in content
        if part["type"] == "tool_use"
    ]
    own: Body = {"role": message["role"]}
    if texts:
        own["content"] = texts
    if calls:
        own["tool_calls"] = calls
    return [*results, own] if texts or calls else results


def _tool(tool: Body) -> Body:
    schema = {**tool["input_schema"]}
    schema.setdefault("type", "object")
    function = {"name": tool["name"], "parameters": schema, "description": tool.get("description")}
    return {"type": "function", "function": function}


class ResponsesWire(Base):
    """`/v1/responses`: each event names itself, and they are numbered."""

    end = b""

    def __init__(self, model: str, ask: Ask, answers: list[Answer], response_id: str) -> None:
        super().__init__(model, ask, answers, "resp")
        self._id = response_id
        self._number = -1

    def opening(self, index: int) -> bytes:
        response = self._response("in_progress", None)
        item: Body = {"id": f"msg_{self._id}", "type": "message", "role": "assistant"}
        item |= {"status": "in_progress", "content": []}
        return (
            self._event("response.created", response=response)
            + self._event("response.in_progress", response=response)
            + self._event("response.output_item.added", output_index=0, item=item)
        )

    def token(self, index: int, position: int) -> bytes:
        delta = self._answers[index].pieces[position]
        where = {"item_id": f"msg_{self._id}", "output_index": 0, "content_index": 0}
        return self._event("response.output_text.delta", **where, delta=delta, logprobs=[])

    def usage(self) -> bytes:
        return self._event("response.completed", response=self._response("completed", self._text()))

    def document(self) -> bytes:
        return orjson.dumps(self._response("completed", self._text()))

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        document = {**fields, "sequence_number": self._number, "type": kind}
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(document))

    def _response(self, status: str, text: str | None) -> Body:
        usage = self._usage()
        part: Body = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
        message: Body = {"id": f"msg_{self._id}", "type": "message", "role": "assistant"}
        message |= {"status": "completed", "content": [part]}
        return {
            "id": self._id,
            "created_at": self._created,
            "model": self._model,
            "object": "response",
            "output": [] if text is None else [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "status": status,
            "usage": None
            if text is None
            else {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }


class MessagesWire(Base):
    """`/v1/messages`."""

    end = b""

    def __init__(self, model: str, ask: Ask, answers: list[Answer]) -> None:
        super().__init__(model, ask, answers, "chatcmpl")

    def opening(self, index: int) -> bytes:
        message = self._message([], {"input_tokens": self._tokens()[0], "output_tokens": 0})
        block = {"type": "text", "text": ""}
        return _named("message_start", message=message) + _named(
            "content_block_start", index=0, content_block=block
        )

    def token(self, index: int, position: int) -> bytes:
        delta = {"type": "text_delta", "text": self._answers[index].pieces[position]}
        return _named("content_block_delta", index=0, delta=delta)

    def usage(self) -> bytes:
        read, written = self._tokens()
        usage = {"input_tokens": read, "output_tokens": written}
        return (
            _named("content_block_stop", index=0)
            + _named("message_delta", delta={"stop_reason": self._stop()}, usage=usage)
            + _named("message_stop")
        )

    def document(self) -> bytes:
        read, written = self._tokens()
        content = [{"type": "text", "text": self._text()}]
        usage = {"input_tokens": read, "output_tokens": written}
        return orjson.dumps(self._message(content, usage) | {"stop_reason": self._stop()})

    def _message(self, content: list[Body], usage: Body) -> Body:
        message = {"id": self._id, "type": "message", "role": "assistant", "content": content}
        return message | {"model": self._model, "usage": usage}

    def _tokens(self) -> tuple[int, int]:
        usage = self._usage()
        return usage["prompt_tokens"], usage["completion_tokens"]

    def _stop(self) -> str:
        return "max_tokens" if self._answers[0].finish_reason == "length" else "end_turn"


def _named(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))
