"""Which requests travel as ids, which as text and why, and that both count alike."""

import json
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tokenizer_pool.conftest import EMBEDDED
from tests.tokenizer_pool.test_messages import JSON, MESSAGES
from tokenizer_pool import requests
from tokenizer_pool.artifact import load_model
from tokenizer_pool.chat import Chat, ChatTemplate, NeedsReference
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.model import Model
from tokenizer_pool.templates import FastTemplate
from tokenizer_pool.types import Kind, TokenizedPrompt, Wanted

USER = {"role": "user", "content": "What's 2+2? 今天 👩‍🚀"}
RENDERED = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    f"<|im_start|>user\n{USER['content']}<|im_end|>\n<|im_start|>assistant\n"
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def reference() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))


def chat(model: Model, **fields: Any) -> TokenizedPrompt:
    body = json.dumps({"model": "m", "messages": [USER], **fields}).encode()
    return model.prepare(Kind.CHAT, requests.parse(body, Kind.CHAT))


def completion(model: Model, prompt: Any, **fields: Any) -> TokenizedPrompt:
    body = json.dumps({"model": "m", "prompt": prompt, **fields}).encode()
    return model.prepare(Kind.COMPLETION, requests.parse(body, Kind.COMPLETION))


def sent_ids(prompt: TokenizedPrompt) -> list[int]:
    document = json.loads(prompt.body(ids=True))
    ids: list[int]
    if "prompt" in document:
        ids = document["prompt"]
    else:
        assert document["messages"] == []
        ids = document["kv_transfer_params"]["prompt_token_ids"]
    return ids


def test_a_chat_travels_as_the_ids_of_its_rendered_template(
    model: Model, reference: tokenizers.Tokenizer
) -> None:
    prompt = chat(model, stream=True, max_tokens=5, temperature=0)
    assert sent_ids(prompt) == reference.encode(RENDERED, add_special_tokens=False).ids
    assert prompt.prompt_tokens == len(sent_ids(prompt))
    assert (prompt.model, prompt.stream, prompt.max_tokens) == ("m", True, 5)
    assert (prompt.exact, prompt.ineligible) == (True, None)
    text = json.loads(prompt.body(ids=False))
    assert text == {
        "model": "m",
        "messages": [USER],
        "stream": True,
        "max_tokens": 5,
        "temperature": 0,
    }


def test_only_the_wanted_forms_are_made(model: Model) -> None:
    def prepare(fields: dict[str, Any], **wanted: bool) -> TokenizedPrompt:
        raw = json.dumps({"model": "m", "messages": [USER], **fields}).encode()
        return model.prepare(Kind.CHAT, requests.parse(raw, Kind.CHAT), Wanted(**wanted))

    both = chat(model)
    assert replace(prepare({}, text=False), text=both.text) == both
    assert replace(prepare({}, ids=False), ids=both.ids) == both
    assert prepare({}, ids=False).body(ids=True) == both.text
    # What cannot travel as ids is there as text in any case.
    assert prepare({"echo": True}, text=False) == chat(model, echo=True)
    watched = prepare({"stream": True}, usage=True, prompt_ids=True)
    assert (watched.added_usage, watched.added_prompt_ids) == (True, True)
    assert watched.text == chat(model, stream=True).text


def test_a_completion_travels_as_ids(model: Model, reference: tokenizers.Tokenizer) -> None:
    prompt = completion(model, "once upon a time")
    assert sent_ids(prompt) == reference.encode("once upon a time").ids
    assert prompt.max_tokens == 16
    assert json.loads(prompt.body(ids=False))["prompt"] == "once upon a time"


def test_the_clients_own_ids_stay(model: Model) -> None:
    prompt = completion(model, [5, 6, 7])
    assert sent_ids(prompt) == [5, 6, 7]
    assert (prompt.prompt_tokens, prompt.exact) == (3, True)


@pytest.mark.parametrize(
    ("fields", "reason", "exact"),
    [
        ({"add_generation_prompt": False}, "add_generation_prompt is off", True),
        (
            {
                "add_generation_prompt": False,
                "continue_final_message": True,
                "messages": [USER, {"role": "assistant", "content": "It is"}],
            },
            "add_generation_prompt is off",
            True,
        ),
        ({"echo": True}, "echo needs the text of the prompt", True),
        ({"return_prompt_text": True}, "return_prompt_text", True),
        ({"use_beam_search": True}, "beam search", True),
        ({"chat_template": "{{ x }}"}, "the request brings its own template", False),
        ({"truncate_prompt_tokens": 4}, "truncate_prompt_tokens", True),
        ({"truncate_prompt_tokens": -1}, "truncate_prompt_tokens", False),
        ({"mm_processor_kwargs": {}}, "mm_processor_kwargs", False),
        ({"future_field": 1}, "unknown field 'future_field'", False),
        ({"tools": [TOOL], "tool_choice": "none"}, "tools with tool_choice none", False),
        (
            {"chat_template_kwargs": {"tokenize": True}},
            "chat_template_kwargs names a renderer argument",
            False,
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "a content part is not text",
            False,
        ),
        (
            {"messages": [{"role": "user", "content": ["x"]}]},
            "a message has a field or shape not proved equal",
            False,
        ),
        ({"tools": [{**TOOL, "x": 1}]}, "a tool has a shape not proved equal", False),
        (
            {"messages": [{"role": "stranger", "content": "x"}]},
            "the template refused the messages",
            False,
        ),
    ],
)
def test_what_is_on_the_list_goes_as_text(
    model: Model, fields: dict[str, Any], reason: str, exact: bool
) -> None:
    prompt = chat(model, **fields)
    assert (prompt.ineligible, prompt.exact, prompt.ids) == (reason, exact, b"")
    assert prompt.prompt_tokens > 0
    document = json.loads(prompt.body(ids=True))
    assert document == {"model": "m", "messages": [USER], **fields}


def test_a_truncated_prompt_is_counted_as_vllm_cuts_it(model: Model) -> None:
    assert chat(model, truncate_prompt_tokens=4).prompt_tokens == 4
    whole = chat(model).prompt_tokens
    assert chat(model, truncate_prompt_tokens=whole + 1).prompt_tokens == whole
    assert completion(model, "a b c d", truncate_prompt_tokens=2).prompt_tokens == 2
    assert chat(model, truncate_prompt_tokens=0).prompt_tokens == 0


def test_prompts_share_the_hashes_of_their_common_beginning(model: Model) -> None:
    common = "".join(f"{n} " for n in range(900))
    one, two = completion(model, common + "x" * 900), completion(model, common + "y" * 900)
    shared = sum(a == b for a, b in zip(one.prefix, two.prefix, strict=False))
    length = len(sent_ids(completion(model, common)))
    assert shared == length // 256 > 2
    assert one.prefix[shared:] != two.prefix[shared:]
    # A block's hash says what stands before it, too.
    ids = sent_ids(completion(model, common))[:512]
    assert completion(model, ids).prefix == one.prefix[:2]
    assert set(completion(model, [ids[0] + 1, *ids[1:]]).prefix).isdisjoint(one.prefix)
    assert completion(model, [2**40] * 512).prefix == ()
    assert len(set(one.prefix)) == len(one.prefix)
    assert completion(model, "short").prefix == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"add_generation_prompt": True},
        {"echo": False, "truncate_prompt_tokens": None, "chat_template": None},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"tools": None, "tool_choice": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"custom": {"a": [1.5]}}},
        {"reasoning_effort": "high", "documents": [{"title": "a", "text": "b"}]},
        {"n": 2, "seed": 1, "logprobs": True, "response_format": {"type": "json_object"}},
        {"metadata": {"a": "b"}, "store": False, "user": "u", "cache_salt": "salt"},
    ],
)
def test_what_changes_nothing_goes_as_ids(model: Model, fields: dict[str, Any]) -> None:
    prompt = chat(model, **fields)
    assert prompt.ineligible is None
    assert prompt.prompt_tokens == len(sent_ids(prompt)) > 0


@pytest.mark.parametrize(
    ("prompt", "fields", "reason", "count"),
    [
        (["a", "a"], {}, "several prompts in one request", 2),
        ([[1, 2], "a"], {}, "several prompts in one request", 3),
        ("a", {"echo": True}, "echo needs the text of the prompt", 1),
        ("a", {"suffix": "b"}, "suffix", 1),
        (None, {"prompt_embeds": "AAAA"}, "prompt_embeds", 1),
        ("", {}, "the prompt has no tokens", 0),
    ],
)
def test_completions_on_the_list(
    model: Model, prompt: Any, fields: dict[str, Any], reason: str, count: int
) -> None:
    prepared = completion(model, prompt, **fields)
    assert (prepared.ineligible, prepared.prompt_tokens) == (reason, count)
    assert prepared.ids == b""


@pytest.mark.parametrize("prompt", [None, 5, [], {}, [1.5], [[]], [[1, "a"]], [True]])
def test_prompts_that_are_none_are_refused(model: Model, prompt: Any) -> None:
    with pytest.raises(InvalidRequest):
        completion(model, prompt)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": ["x"]},
        {"documents": "x"},
        {"chat_template_kwargs": [1]},
        {"reasoning_effort": 5},
        {"continue_final_message": True},
    ],
)
def test_chats_that_vllm_refuses_are_refused(model: Model, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        chat(model, **fields)


def test_a_model_that_numbers_its_tool_calls_needs_to_see_the_history(model: Model) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}, USER]
    counting = replace(model, counts_tool_calls=True)
    assert chat(model, messages=asked, tools=[TOOL]).ineligible is None
    ineligible = chat(counting, messages=asked, tools=[TOOL])
    assert ineligible.ineligible == "the model's tool call ids count the history"
    assert ineligible.exact
    assert chat(counting, messages=asked).ineligible is None
    assert chat(counting, tools=[TOOL]).ineligible is None


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, "  "),
        ({"reasoning_effort": "high"}, "high True "),
        ({"reasoning_effort": "none"}, "none False "),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
            "low False ",
        ),
        ({"chat_template_kwargs": {"enable_thinking": None, "reasoning_effort": "auto"}}, "  "),
        ({"chat_template_kwargs": {"bos_token": "mine"}}, "  mine"),
    ],
)
def test_a_templates_arguments_are_composed_as_vllm_does(
    fields: dict[str, Any], prompt: str
) -> None:
    source = "{{ reasoning_effort }} {{ enable_thinking }} {{ bos_token }}"
    template = ChatTemplate(FastTemplate(source), True, None, False, False)
    document = requests.Document({"messages": [USER], **fields})
    assert Chat(template, template, {"bos_token": ""}).prompt(document) == prompt


def test_trusted_transfer_parameters_leave_no_room_for_ids(model: Model) -> None:
    raw = json.dumps({"model": "m", "messages": [USER], "kv_transfer_params": {"a": 1}}).encode()
    document = requests.parse(raw, Kind.CHAT, trusted=True)
    assert model.prepare(Kind.CHAT, document).ineligible == "the client set kv_transfer_params"
    stripped = model.prepare(Kind.CHAT, requests.parse(raw, Kind.CHAT))
    assert stripped.ineligible is None
    assert json.loads(stripped.body(ids=False)) == {"model": "m", "messages": [USER]}


def test_a_model_without_tokenizer_goes_as_text() -> None:
    prompt = chat(Model("t"))
    assert (prompt.ineligible, prompt.exact, prompt.ids) == ("no tokenizer", False, b"")
    assert completion(Model("t"), "x" * 400).prompt_tokens == 101


def test_tokenize_answers_as_the_backends_endpoint(
    model: Model, reference: tokenizers.Tokenizer
) -> None:
    def tokens(**fields: Any) -> list[int]:
        document = requests.parse_tokenize(json.dumps(fields).encode())
        answer = model.tokenize(document)
        ids: list[int] = json.loads(answer.ids)
        assert answer.count == len(ids)
        return ids

    assert tokens(prompt="a b") == reference.encode("a b").ids
    assert tokens(messages=[USER]) == reference.encode(RENDERED, add_special_tokens=False).ids
    assert tokens(messages=[USER], documents="ignored") == tokens(messages=[USER])
    for bad in ({"prompt": 5}, {"messages": [{"role": "x", "content": "y"}]}, {"messages": [5]}):
        with pytest.raises(InvalidRequest):
            tokens(**bad)


def test_tokens_have_names_and_become_text_again(
    model: Model, reference: tokenizers.Tokenizer
) -> None:
    text = "<|im_start|>Zürich 今天 👩‍🚀"
    document = requests.parse_tokenize(
        json.dumps({"prompt": text, "return_token_strs": True}).encode()
    )
    answer = model.tokenize(document)
    assert answer.strings is not None
    assert json.loads(answer.strings) == reference.encode(text).tokens
    assert model.detokenize({"tokens": json.loads(answer.ids)}) == text
    assert model.detokenize({"tokens": []}) == ""
    for bad in (None, "1", [-1], [1.5], [2**32]):
        with pytest.raises(InvalidRequest):
            model.detokenize({"tokens": bad})
    with pytest.raises(InvalidRequest):
        Model("t").detokenize({"tokens": [1]})


def test_on_the_loop_only_the_fast_engines_run(embedded_artifact: Any) -> None:
    quick = load_model("m", embedded_artifact, on_loop=True)
    assert chat(quick) == chat(load_model("m", embedded_artifact, on_loop=False))
    # An argument of a kind on which the engines were not compared needs the reference.
    with pytest.raises(NeedsReference):
        chat(quick, chat_template_kwargs={"x": [1]})


def test_a_number_beyond_64_bits_in_a_message_travels_as_it_was_written(model: Model) -> None:
    messages = [{"role": "user", "content": [None]}, {"role": -(2**63) - 1, "name": "1e+9"}]
    assert json.loads(chat(model, messages=messages).body(ids=False))["messages"] == messages


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(
    messages=MESSAGES,
    fields=st.dictionaries(
        st.sampled_from(["tools", "documents", "chat_template_kwargs", "stop", "max_tokens"]),
        JSON,
        max_size=2,
    ),
)
def test_no_json_crashes_a_model(model: Model, messages: Any, fields: dict[str, Any]) -> None:
    try:
        prompt = chat(model, messages=messages, **fields)
    except InvalidRequest:
        return
    assert (prompt.ineligible is None) == bool(prompt.ids)
    if prompt.ids:
        assert prompt.prompt_tokens == len(sent_ids(prompt))
    assert json.loads(prompt.body(ids=False))["messages"] == messages
