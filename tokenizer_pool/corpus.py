"""The fixed adversarial corpus on which a fast engine is compared with the reference.

Texts and chats that real traffic brings and that tokenizers and template engines are known to
disagree on. Deterministic: the same for every model, apart from its own special tokens.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

_PROSE: Final = (
    "The forebay is the pool of water just upstream of the turbines; it keeps the head even. "
    "“Typographic quotes” — dashes, ellipses… and non\u00a0breaking\u202fspaces.\n\n"
    "It's, we'll, I'D, they've; 3,141.59 and 1e-9, 0x7f, v1.2.3-rc4, $5.00, 50%, #hashtag.\n"
)
_CODE: Final = (
    "def f(xs: list[int]) -> int:\n\treturn sum(x ** 2 for x in xs if x % 2)  # ok\n\n\n"
    "    if(a&&!b||c==d){ return a?.b ?? c; }\r\n<div class='x'>&amp;</div>\n"
    "SELECT * FROM t WHERE a LIKE '%\\_%' -- c\n"
)
_TEXTS: Final = (
    "",
    " ",
    "  leading and trailing  ",
    "\n",
    "\n\n\n\t\t  \n",
    "\r\n\r\n",
    _PROSE,
    _CODE,
    "今天天气很好，我们去公园散步吧。数据中心的延迟是多少？",
    "東京都千代田区一丁目、ありがとうございます。カタカナ",
    "안녕하세요 세계. 토크나이저",
    "Здравствуй, мир! ΑΒΓ αβγ ﬁ ﬂ",
    "مرحبا بالعالم — שלום עולם",
    "नमस्ते दुनिया ก็ดี ភាសាខ្មែរ",
    "👨‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪 🧑🏿‍🚀",
    "e\u0301 e\u0300 n\u0303 A\u030a (NFD) é è ñ Å (NFC) \u0344 \u0958 \u2126 \ufb1d",
    "Z̷̢̛͇̰͍a̸͓͝l̵͚̇g̶̲͠o̴̱͂",
    "١٢٣٤٥ ०१२३ 一二三 ⅫⅣ ½ ² 𝟘𝟙𝟚 １２３",
    "12345678901234567890 1 12 123 1234 0001",
    "\u200b\u200c\u200d\ufeff\u2028\u2029\u0085\x0b\x0c\x1c\x00\x7f",
    "\U0001f9ff\U0010fffd\ue000",
    "a" * 3000,
    " " * 3000,
    "\n" * 700,
    "-" * 700 + "=" * 700,
    "ab " * 900,
    "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0123456789+/" * 40,
    "https://example.org/a/b?c=d&e=%20f#g user@example.org ../../etc/passwd C:\\x\\y",
    '{"a": [1, 2.5, null, true], "b": {"c": "\\u00e9\\n"}}',
    "<s></s><pad><unk><bos><eos>[INST][/INST]<<SYS>><|x|><|endoftext|><|im_start|>",
    "camelCaseWordsSnake_case_wordsSHOUTINGWords ALLCAPS",
    "ﷺ㍿㌖Ⅷ①ﾊﾝｶｸ　全角",
    "ſtraße İstanbul ǅ ŉ ΐ",
    "don't DON'T can’t 'tis o'clock rock'n'roll",
)
_AROUND: Final = ("", " ", "\n", "x", "é", "  \n", "今")


def texts(special: Iterable[str]) -> Iterator[str]:
    """The texts, and each special token of the model in awkward company."""
    yield from _TEXTS
    for token in special:
        for around in _AROUND:
            yield f"{around}{token}{around}"
        yield f"{token}{token}"
        yield f"{token[:-1]} {token[1:]}"
        yield f"{token[:-1]}\u200b{token[-1:]}"
        yield token.upper()
    yield "".join(special)
    yield _PROSE.join(special)


def _tool(name: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {"type": "function", "function": {"name": name, "description": None,
                                             "parameters": parameters}}  # fmt: skip


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"arguments": arguments, "name": name}
    return {"id": "call_1", "function": function, "type": "function"}


_TOOLS: Final = [
    _tool(
        "weather",
        place={"type": "string", "description": "Città, <b>\"città\"</b> & 'città' / 都市"},
        days={"type": "integer", "minimum": 1, "maximum": 14, "default": None},
        scale={"enum": ["C", "F", 1, 2.5, 1e-7, 1e22, True, None], "nested": [[[]], {}]},
    ),
    _tool("none"),
    {"type": "function", "function": {"name": "bare", "description": "d\n\t", "parameters": None}},
]
_ARGUMENTS: Final = {
    "place": 'Zürich "old" <town>',
    "days": 3,
    "deep": {"a": [1, -2.5, None, True, "\u2028", "\\"], "b": {}},
    "large": 12345678901234567890,
    "": "",
}
_ROUND: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "", "tool_calls": [_call("weather", _ARGUMENTS)]},
    {"role": "tool", "content": '{"t": 21.5}', "tool_call_id": "call_1"},
]
_THINKING: Final = {
    "role": "assistant",
    "content": "<think>\nhm\n</think>\n\nFour.",
    "reasoning": "two and two",
    "reasoning_content": "two and two",
}


def _conversations() -> Iterator[list[dict[str, Any]]]:
    system = {"role": "system", "content": "You are terse."}
    user = {"role": "user", "content": "What is 2+2?"}
    assistant = {"role": "assistant", "content": "4"}
    yield [user]
    yield [system, user]
    yield [system, user, assistant, user, assistant, user]
    yield [user, user]
    yield [user, assistant]
    yield [user, assistant, assistant, user]
    yield [{"role": "user", "content": ""}]
    yield [system]
    yield [{"role": "user", "content": "  spaces around \n"}, {"role": "assistant", "content": ""}]
    yield [system, *_ROUND]
    yield [*_ROUND, assistant, user]
    yield [*_ROUND, {"role": "tool", "content": "second result"}, user]
    yield [user, {"role": "assistant", "content": "so:", "tool_calls": [_call("none", {})] * 2}]
    yield [user, _THINKING, user]
    yield [user, {**_THINKING, "content": "plain"}, user, assistant, user]
    yield [{"role": "user", "content": "hi", "name": "Zoë"}]
    yield [{"role": "critic", "content": "custom role"}, user]
    yield [user, {"role": "system", "content": "late system"}, user]
    for text in _TEXTS:
        if len(text) < 400:
            yield [
                system,
                {"role": "user", "content": text},
                {"role": "assistant", "content": text},
            ]


_ARGUMENT_SETS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "reasoning_effort": "high"},
    {"thinking": True, "date_string": "01 Jan 2026", "custom": "<&>"},
)


def _as_parts(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        message
        if message["role"] == "tool"
        else message | {"content": [{"type": "text", "text": message["content"]}]}
        for message in conversation
    ]


def contexts(*, parts: bool) -> Iterator[dict[str, Any]]:
    """Template contexts, without the model's special tokens; content as parts where wanted."""
    for number, conversation in enumerate(_conversations()):
        messages = _as_parts(conversation) if parts else conversation
        for tools in (None, _TOOLS):
            for arguments in _ARGUMENT_SETS if number < 18 else _ARGUMENT_SETS[:1]:
                yield _context(messages, tools, number % 2 == 0) | arguments
    documents = [{"title": "Forebay", "text": "A pool of water."}]
    yield _context(_ROUND[:1], None, True) | {"documents": documents}


def whole_floats(*, parts: bool) -> Iterator[dict[str, Any]]:
    """Contexts with numbers such as 2.0, which minijinja may hand on as 2."""
    number = {"type": "number", "default": 2.0, "const": 3.0, "enum": [1.0], "minimum": 0.0,
              "maximum": 10.0, "example": 4.0}  # fmt: skip
    call = {"role": "assistant", "content": "", "tool_calls": [_call("f", {"x": 1.0, "y": [5.0]})]}
    messages = [_ROUND[0], call, {"role": "tool", "content": "ok", "tool_call_id": "call_1"}]
    yield _context(_as_parts(messages) if parts else messages, [_tool("f", x=number)], True)


def _context(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generate: bool
) -> dict[str, Any]:
    return {
        "messages": messages,
        "tools": tools,
        "documents": None,
        "add_generation_prompt": generate,
    }
