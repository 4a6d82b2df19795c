"""What the gateway counts, vLLM counts: the prompt tokens of APIs that travel as text."""

from typing import Any

import httpx2 as httpx
import pytest

from tests.real_vllm.servers import Server

USER = {"role": "user", "content": "What is a forebay?  12345"}
TOOL = {
    "name": "weather",
    "description": "Weather at a place; °C",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"place": "Bern", "days": 2}',
}
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"input": "What is a forebay?  12345"},
    "instructions": {"input": "Hi", "instructions": "Be brief.\n"},
    "parts": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "one"},
                    {"type": "input_text", "text": ""},
                    {"type": "input_text", "text": "two"},
                ],
            }
        ]
    },
    "turns": {
        "input": [
            USER,
            {"role": "assistant", "content": "A pool."},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Of water."}],
            },
            USER,
        ]
    },
    "calls": {
        "input": [
            USER,
            CALL,
            CALL | {"call_id": "c2", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4 °C"},
            {"type": "function_call_output", "call_id": "c2", "output": "5 °C"},
        ]
    },
    "said and called": {
        "input": [
            USER,
            {"role": "assistant", "content": "Let me see."},
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "4 °C"},
        ]
    },
    "reasoning": {
        "input": [
            USER,
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
            {"role": "assistant", "content": "A pool."},
            USER,
        ]
    },
    "tools": {"input": "Weather?", "tools": [{"type": "function", "strict": True, **TOOL}]},
    "bare tool": {"input": "Weather?", "tools": [{"type": "function", "name": "ping"}]},
    "effort": {"input": "Hi", "reasoning": {"effort": "low"}},
    "template": {"input": "Hi", "chat_template_kwargs": {"enable_thinking": False}},
    "developer": {"input": [{"role": "developer", "content": "Be brief."}, USER]},
}
ANTHROPIC_TOOL = {"name": "f", "description": "does", "input_schema": {"properties": {"a": {}}}}
MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"messages": [USER]},
    "system": {"messages": [USER], "system": "Be brief."},
    "system parts": {
        "messages": [USER],
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: 5"},
            {"type": "text", "text": "Be"},
            {"type": "text", "text": " brief."},
        ],
    },
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}]
    },
    "tools": {"messages": [USER], "tools": [ANTHROPIC_TOOL]},
    "effort": {"messages": [USER], "output_config": {"effort": "low"}},
    "calls": {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "é", "b": 1.5}},
                    {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": "4"}, {"type": "text", "text": "5"}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [ANTHROPIC_TOOL],
    },
    "prefilled": {"messages": [USER, {"role": "assistant", "content": "A pool"}]},
}


def counted(gateway: Server, path: str, body: dict[str, Any]) -> tuple[int, int]:
    """The gateway's count, and vLLM's."""
    answer = httpx.post(gateway.url + path, json={"model": "tiny"} | body, timeout=60)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    return int(answer.headers["x-forebay-prompt-tokens"]), usage["input_tokens"]


@pytest.mark.parametrize("body", RESPONSES.values(), ids=RESPONSES.keys())
def test_a_responses_count_is_vllms(gateway: Server, body: dict[str, Any]) -> None:
    ours, theirs = counted(gateway, "/v1/responses", body | {"max_output_tokens": 1})
    assert ours == theirs


@pytest.mark.parametrize("body", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_messages_count_is_vllms(gateway: Server, vllm: Server, body: dict[str, Any]) -> None:
    ours, theirs = counted(gateway, "/v1/messages", body | {"max_tokens": 1})
    assert ours == theirs
    question = {"model": "tiny"} | body
    told = [
        httpx.post(f"{server.url}/v1/messages/count_tokens", json=question, timeout=60).json()
        for server in (gateway, vllm)
    ]
    assert told[0] == told[1]


def test_what_is_marked_exact_is_what_was_tested(gateway: Server) -> None:
    """The cases above must not pass as lucky estimates."""
    page = httpx.get(f"{gateway.url}/metrics", timeout=60).text.splitlines()
    wrong = [
        line
        for line in page
        if line.startswith("forebay_prompts_counted_total")
        and 'count="estimated"' in line
        and ('endpoint="/v1/responses"' in line or 'endpoint="/v1/messages"' in line)
    ]
    before = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in wrong}
    for path, bodies in (("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)):
        for body in bodies.values():
            limit = {"max_output_tokens": 1} if path == "/v1/responses" else {"max_tokens": 1}
            httpx.post(gateway.url + path, json={"model": "tiny"} | body | limit, timeout=60)
    after = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in httpx.get(f"{gateway.url}/metrics", timeout=60).text.splitlines()
        if line.rpartition(" ")[0] in before
    }
    assert after == before
