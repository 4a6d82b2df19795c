"""What comes in is checked, what goes upstream is spliced, and neither can be fooled."""

import json
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenizer_pool import requests, upstream
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.registry import resolve
from tokenizer_pool.types import Kind, Wanted

WATCHED = Wanted(usage=True, prompt_ids=True)
CHAT = {"model": "m", "messages": [{"role": "user", "content": "é"}]}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


def refused(raw: bytes, kind: Kind = Kind.CHAT) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        requests.parse(raw, kind)
    return error.value


@settings(max_examples=40, deadline=None)
@given(extra=st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), JSON, max_size=4))
def test_the_text_body_is_the_clients_own_document(extra: dict[str, Any]) -> None:
    sent = extra | CHAT
    document = requests.parse(body(sent), Kind.CHAT)
    spliced = upstream.text_body(document, Kind.CHAT, "m")
    kept = {key: value for key, value in sent.items() if key not in requests.STRIPPED}
    assert json.loads(spliced) == kept


def by_ids(
    raw: Any, kind: Kind = Kind.CHAT, wanted: Wanted = WATCHED
) -> tuple[dict[str, Any], upstream.Asked]:
    """What goes upstream by the ids [1,2], and what of it is not the client's own wish."""
    head, asked = upstream.ids_head(requests.parse(body(raw), kind), kind, "only", wanted)
    document: dict[str, Any] = json.loads(upstream.ids_body(kind, head, b"[1,2]"))
    return document, asked


def test_ids_take_the_place_of_the_prompt() -> None:
    chat, _ = by_ids(CHAT, wanted=Wanted())
    params = {"prompt_token_ids": [1, 2]}
    assert chat == {"model": "m", "messages": [], "kv_transfer_params": params}
    completion, _ = by_ids({"prompt": "x", "n": 1}, Kind.COMPLETION, Wanted())
    assert completion == {"model": "only", "n": 1, "prompt": [1, 2]}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"include_usage": True}),
        ({"stream_options": None}, {"include_usage": True, "continuous_usage_stats": False}),
        (
            {"stream_options": {"include_usage": False, "continuous_usage_stats": True, "x": 1}},
            {"include_usage": True, "continuous_usage_stats": False, "x": 1},
        ),
    ],
)
@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.COMPLETION])
def test_a_stream_is_asked_for_the_usage_that_its_client_does_not_want(
    kind: Kind, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    sent = {**CHAT, "prompt": "x", "stream": True, **fields}
    document, asked = by_ids(sent, kind)
    assert asked == upstream.Asked(usage=True, prompt_ids=True)
    assert document.pop("stream_options") == options
    assert document.pop("return_token_ids") is True
    plain, nothing = by_ids(sent, kind, Wanted())
    plain.pop("stream_options", None)
    assert document == plain
    assert nothing == upstream.NOTHING


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"stream": True, "stream_options": {"include_usage": True}}, upstream.Asked(False, True)),
        ({"stream": False}, upstream.Asked(False, True)),
        ({"stream": True, "return_token_ids": True}, upstream.Asked(True, False)),
        ({"stream": True, "return_token_ids": False}, upstream.Asked(True, True)),
        ({"stream": True, "stream_options": "x", "n": 1}, upstream.Asked(False, True)),
        ({"stream": True, "n": 2}, upstream.NOTHING),
        ({"return_token_ids": True}, upstream.NOTHING),
    ],
)
def test_only_what_the_client_does_not_ask_for_is_ours(
    fields: dict[str, Any], asked: upstream.Asked
) -> None:
    document, found = by_ids(CHAT | fields)
    assert found == asked
    if not asked.usage:
        assert document.get("stream_options") == fields.get("stream_options")
    else:
        assert document["stream_options"]["include_usage"] is True
    if asked.prompt_ids:
        assert document["return_token_ids"] is True
    else:
        assert document.get("return_token_ids") == fields.get("return_token_ids")


@pytest.mark.parametrize(
    "extra",
    [{}, {"model": None}, {"n": 1}, {"model": None, "n": 1}, {"model": ""}, {"model": "", "n": 1}],
)
def test_a_request_without_a_model_gets_one(extra: dict[str, Any]) -> None:
    document = requests.parse(body({"prompt": "x"} | extra), Kind.COMPLETION)
    spliced = upstream.text_body(document, Kind.COMPLETION, 'the "only"')
    assert json.loads(spliced) == extra | {"model": 'the "only"', "prompt": "x"}


@pytest.mark.parametrize("field", sorted(requests.STRIPPED))
def test_a_client_does_not_steer_the_engine_unless_trusted(field: str) -> None:
    raw = body(CHAT | {field: {"prompt_token_ids": [1]}})
    assert field not in requests.parse(raw, Kind.CHAT).values
    assert field in requests.parse(raw, Kind.CHAT, trusted=True).values


def test_integers_of_any_size_survive() -> None:
    huge = 123456789012345678901234567890
    tool = {"type": "function", "function": {"name": "f", "parameters": {"const": huge}}}
    document = requests.parse(body(CHAT | {"tools": [tool]}), Kind.CHAT)
    assert document.values["tools"] == [tool]
    assert str(huge).encode() in upstream.text_body(document, Kind.CHAT, "m")
    large = memoryview(body(CHAT | {"tools": [tool]}))  # as large bodies come
    assert requests.parse(cast("bytes", large), Kind.CHAT).values["tools"] == [tool]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense",
        b"[]",
        b'"text"',
        b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"model":"m","messages":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"model":"m","messages":[{"role":"user"}],"metadata":'
        + b'{"a":' * 900
        + b"1"
        + b"}" * 901,
    ],
)
def test_a_body_that_is_not_one_plain_json_object_is_refused(raw: bytes) -> None:
    error = refused(raw)
    assert error.message


@pytest.mark.parametrize("huge", [b"1", b"123456789012345678901234567890"])
@pytest.mark.parametrize("as_it_comes", [bytes, memoryview])
def test_a_byte_order_mark_before_the_body_is_passed_over(
    huge: bytes, as_it_comes: Callable[[bytes], bytes]
) -> None:
    raw = b'{"model":"m","seed":%b,"messages":[{"role":"user","content":1e22}]}' % huge
    plain = upstream.text_body(requests.parse(raw, Kind.CHAT), Kind.CHAT, "m")
    marked = requests.parse(as_it_comes(b"\xef\xbb\xbf" + raw), Kind.CHAT)
    assert upstream.text_body(marked, Kind.CHAT, "m") == plain
    assert refused(b"\xef\xbb\xbf\xef\xbb\xbf" + raw).code == "invalid_json"


def test_of_a_key_that_comes_twice_only_the_last_travels_on() -> None:
    raw = b'{"model":"a","n":1,"messages":[{"x":1}],"model":"b","messages":[{"role":"user"}],"n":2}'
    document = requests.parse(raw, Kind.CHAT)
    assert requests.model_name(document) == "b"
    text = upstream.text_body(document, Kind.CHAT, "b")
    assert text == b'{"model":"b","n":2,"messages":[{"role":"user"}]}'


@pytest.mark.parametrize(
    ("document", "kind", "param"),
    [
        ({"model": "m"}, Kind.CHAT, "messages"),
        ({"model": "m", "messages": []}, Kind.CHAT, "messages"),
        ({"model": "m", "messages": "hi"}, Kind.CHAT, "messages"),
        ({"model": "m", "messages": [1]}, Kind.COMPLETION, "prompt"),
    ],
)
def test_a_prompt_is_required(document: Any, kind: Kind, param: str) -> None:
    assert refused(body(document), kind).param == param


@pytest.mark.parametrize(
    ("fields", "kind", "want"),
    [
        ({}, Kind.CHAT, None),
        ({"max_tokens": 5}, Kind.CHAT, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, Kind.CHAT, 7),
        ({"max_tokens": 5, "max_completion_tokens": None}, Kind.CHAT, 5),
        ({"max_tokens": 5.0}, Kind.CHAT, 5),
        ({}, Kind.COMPLETION, 16),
        ({"max_tokens": None}, Kind.COMPLETION, 16),
        ({"max_tokens": 0}, Kind.COMPLETION, 0),
    ],
)
def test_output_tokens_as_vllm_counts_them(fields: Any, kind: Kind, want: int | None) -> None:
    assert requests.max_tokens(requests.Document(fields), kind) == want


@pytest.mark.parametrize("value", [-1, 1.5, True, "5", [1]])
def test_output_tokens_that_are_no_count_are_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="whole number") as error:
        requests.max_tokens(requests.Document({"max_tokens": value}), Kind.CHAT)
    assert error.value.param == "max_tokens"


def test_stream_and_model_have_their_types() -> None:
    assert requests.wants_stream(requests.Document({"stream": True}))
    assert not requests.wants_stream(requests.Document({"stream": None}))
    with pytest.raises(InvalidRequest, match="stream"):
        requests.wants_stream(requests.Document({"stream": "yes"}))
    with pytest.raises(InvalidRequest, match="model"):
        requests.model_name(requests.Document({"model": 5}))


def test_an_empty_name_leaves_the_model_to_us_as_in_vllm() -> None:
    empty = requests.parse(body(CHAT | {"model": ""}), Kind.CHAT)
    assert requests.model_name(empty) is None
    assert resolve({"only": 1}, empty) == 1
    assert resolve({"only": 1}, requests.parse_tokenize(body({"model": "", "prompt": "x"}))) == 1
    assert resolve({"only": 1}, requests.parse_detokenize(body({"model": "", "tokens": []}))) == 1
    with pytest.raises(InvalidRequest) as error:
        resolve({"one": 1, "two": 2}, empty)
    assert error.value.code == "model_required"


def test_dumps_are_compact_in_both_parsers() -> None:
    fast = requests.Document({})
    exact = requests.Document({}, exact=True)
    value = {"é": [1, 2.5, None], "b": "\u2028"}
    assert orjson.loads(exact.dump(value)) == orjson.loads(fast.dump(value)) == value
    assert b" " not in exact.dump(value)
