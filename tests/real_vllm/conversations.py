"""Fifty chat requests that differ in everything that a template or a tokenizer looks at."""

import itertools
import random
from typing import Any

Request = dict[str, Any]

_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place; °C, “now”",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
_BARE = {"type": "function", "function": {"name": "ping"}}
# Keys in another order than vLLM writes them, a field that few send, and an explicit null.
_ODD = {
    "function": {
        "strict": True,
        "parameters": {"zeta": {"type": "null"}, "type": "object", "alpha": []},
        "name": "odd",
        "description": None,
    },
    "type": "function",
}


def _calls(*arguments: str) -> Request:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "get_weather", "arguments": a}}
        for n, a in enumerate(arguments)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(content: Any, call: int = 0) -> Request:
    return {"role": "tool", "tool_call_id": f"call_{call}", "content": content}


def _user(content: Any) -> Request:
    return {"role": "user", "content": content}


def _assistant(content: Any) -> Request:
    return {"role": "assistant", "content": content}


def _system(content: Any) -> Request:
    return {"role": "system", "content": content}


def _text(*texts: str) -> list[Request]:
    return [{"type": "text", "text": text} for text in texts]


_TEXTS = (
    "Hi",
    "",
    " ",
    "\n\n",
    "  leading and trailing  ",
    "tabs\tand\r\nline ends\n",
    # Where the published tokenizer.json and what transformers makes of it differ.
    "many   12345 spaces    6 before 7  digits",
    "2026-11-30T03:04:05Z, 3.14159e-10, 0x1F, 1,000,000",
    "naïve café, Ωμέγα, русский, עברית, العربية, हिन्दी",
    "水は低きに流れる。前池はその手前にある。",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b\ufeff ٣ ①",
    "<|im_start|>system\nobey<|im_end|>\n<|endoftext|>",
    "def f(x):\n    return {'a': [x ** 2]}  # {{ braces }} {% raw %}",
    '<tool_call>{"name": "x"}</tool_call> & <b>"quoted"</b> \'it\'\'s\'',
    "a" * 700,
    "word " * 400,
)

_PLANNED: dict[str, Request] = {
    "tools": {"messages": [_user("Weather in Bern?")], "tools": [_WEATHER]},
    "tools-bare": {"messages": [_user("Ping.")], "tools": [_BARE]},
    "tools-odd-keys": {"messages": [_user("Odd.")], "tools": [_ODD, _WEATHER, _BARE]},
    "tools-with-system": {
        "messages": [_system("Be brief."), _user("Weather?")],
        "tools": [_WEATHER],
    },
    "tool-result": {
        "messages": [_user("Bern?"), _calls('{"place": "Bern", "days": 2}'), _result("12 °C")],
        "tools": [_WEATHER],
    },
    "tool-results-parallel": {
        "messages": [
            _user("Bern and 東京?"),
            _calls('{"place":"Bern"}', '{"place": "東京", "days": 1.50, "x": [1e3, true, null]}'),
            _result('{"celsius": 12}'),
            _result(_text("five", "degrees"), 1),
            _assistant("12 and 5."),
            _user("Thanks"),
        ],
        "tools": [_WEATHER],
    },
    "tool-result-empty": {
        "messages": [_user("?"), _calls("{}"), _result("")],
        "tools": [_WEATHER],
    },
    "tool-call-with-content": {
        "messages": [
            _user("?"),
            _calls('{"place": "Bern"}') | {"content": "One moment."},
            _result("12"),
        ],
    },
    "parts": {"messages": [_user(_text("first", "second", "third"))]},
    "parts-empty": {"messages": [_user(_text("", "only", ""))]},
    "parts-all-empty": {"messages": [_user(_text("", ""))]},
    "parts-none": {"messages": [_user([])]},
    "parts-system": {"messages": [_system(_text("Be", "brief")), _user(_text("Hi"))]},
    "parts-unicode": {"messages": [_user(_text("水", "👩‍👧", "\n"))]},
    "system-only": {"messages": [_system("Speak.")]},
    "system-empty": {"messages": [_system(""), _user("Hi")]},
    "system-late": {"messages": [_user("Hi"), _system("Now be brief."), _user("Go on")]},
    "assistant-last": {"messages": [_user("Hi"), _assistant("Hello")]},
    "assistant-null": {"messages": [_user("Hi"), _assistant(None), _user("Well?")]},
    "names": {"messages": [_user("Hi") | {"name": "ada"}, _user("Me too") | {"name": "bob"}]},
}

# What vLLM would not honour beside ids, or what nobody has proved equal: these go as text.
AS_TEXT: dict[str, Request] = {
    "tools-not-to-be-called": {
        "messages": [_user("Don't call.")],
        "tools": [_WEATHER],
        "tool_choice": "none",
    },
    "tool-with-unknown-keys": {
        "messages": [_user("Odd.")],
        "tools": [{**_BARE, "annotations": {"unknown": [1]}}],
    },
    "prompt-that-ends-open": {
        "messages": [_user("Count"), _assistant("One, two")],
        "extra_body": {"add_generation_prompt": False, "continue_final_message": True},
    },
    "prompt-cut-short": {
        "messages": [_user("water " * 50)],
        "extra_body": {"truncate_prompt_tokens": 20},
    },
    "prompt-echoed": {
        "messages": [_user("Again"), _assistant("and again")],
        "extra_body": {"echo": True, "add_generation_prompt": False},
    },
}


def fifty() -> list[tuple[str, Request]]:
    """The planned ones, then compositions of the texts in conversations of one to nine messages.

    Always the same fifty: the names are test ids.
    """
    draw = random.Random(50)
    composed = ((f"composed-{n}", _compose(draw, n)) for n in itertools.count())
    return list(itertools.islice(itertools.chain(_PLANNED.items(), composed), 50))


def _compose(draw: random.Random, number: int) -> Request:
    messages = [_system(draw.choice(_TEXTS))] if draw.random() < 0.5 else []
    for _ in range(draw.randrange(4)):
        messages += [_user(draw.choice(_TEXTS)), _assistant(draw.choice(_TEXTS))]
    # Each text ends at least one of the conversations.
    messages.append(_user(_TEXTS[number % len(_TEXTS)]))
    tools = [_WEATHER, _BARE, _ODD][: draw.randrange(4)] if draw.random() < 0.3 else []
    return {"messages": messages} | ({"tools": tools} if tools else {})
