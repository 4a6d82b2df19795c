"""How the prompts of each API are found in its requests: one row and one function for each.

Chats and completions, which can travel as token ids, are `model`'s own business. Requests of all
other APIs go to the backend as the client wrote them (less what clients may not say): here they
are only counted, exactly where vLLM's reading of them is known.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tokenizer_pool import anthropic, requests, responses, upstream
from tokenizer_pool.eligibility import Ineligible, Unproved
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.media import Media, media_in
from tokenizer_pool.messages import estimate
from tokenizer_pool.model import Model
from tokenizer_pool.requests import MOST_TOKENS, NO_ALIASES, Document
from tokenizer_pool.types import Kind, TokenizedPrompt, Wanted

_BYTES_PER_TOKEN: Final = 4
TEXT_ONLY: Final = Ineligible("this API takes text")
PAIRS: Final = Ineligible("how texts are joined to pairs depends on the model", exact=False)
UNREAD: Final = Ineligible("this request is not read here", exact=False)
_BOTH: Final = Wanted()


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of a request's prompts together, and of its longest one."""

    tokens: int
    longest: int
    verdict: Ineligible
    media: Media = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """`count` may raise Unproved, with `guess` being the conversation to guess from then.

    `room` is the field with the number of output tokens that the client wants, if there is one.
    """

    count: Callable[[Model, Document], Counted]
    guess: str = ""
    room: str = ""


def parse(
    body: bytes, kind: Kind, *, trusted: bool = False, aliases: Mapping[str, str] = NO_ALIASES
) -> Document:
    """The body as a JSON object, checked as far as its kind demands; raises InvalidRequest."""
    if kind in SHAPES:
        return requests.parse_any(body, trusted=trusted, aliases=aliases)
    return requests.parse(body, kind, trusted=trusted, aliases=aliases)


def prepare(
    model: Model, kind: Kind, document: Document, wanted: Wanted = _BOTH
) -> TokenizedPrompt:
    """Count a request's prompts and assemble what goes upstream.

    Raises InvalidRequest, or NeedsReference on the event loop.
    """
    shape = SHAPES.get(kind)
    if shape is None:
        return model.prepare(kind, document, wanted)
    values = document.values
    counted = _count(model, shape, document)
    return TokenizedPrompt(
        model=model.name,
        prompt_tokens=counted.tokens,
        longest=counted.longest,
        max_tokens=_whole(values.get(shape.room)),
        stream=values.get("stream") is True,
        exact=counted.verdict.exact,
        ineligible=counted.verdict.reason,
        text=upstream.whole_body(document, model.name),
        media=counted.media,
        previous=_name(values.get("previous_response_id")),
    )


def _count(model: Model, shape: Shape, document: Document) -> Counted:
    try:
        return shape.count(model, document)
    except Unproved as unproved:
        verdict = unproved.verdict
    except InvalidRequest:
        # vLLM refuses it in its own words.
        verdict = UNREAD
    conversation = document.values.get(shape.guess)
    if not isinstance(conversation, list):
        return replace(_by_size(document), verdict=replace(verdict, exact=False))
    tokens = estimate(conversation)
    verdict = replace(verdict, exact=False)
    return Counted(tokens, tokens, verdict, media_in(conversation))


def _responses(model: Model, document: Document) -> Counted:
    values = document.values
    counted = _chat(model, document, responses.as_chat(values))
    if values.get("previous_response_id") is not None:
        return replace(counted, verdict=responses.HISTORY)
    return counted


def _messages(model: Model, document: Document) -> Counted:
    values = document.values
    if not isinstance(values.get("messages"), list):
        raise Unproved(UNREAD)
    counted = _chat(model, document, anthropic.as_chat(values))
    doubt = anthropic.doubt(values)
    return counted if doubt is None else replace(counted, verdict=doubt)


def _chat(model: Model, document: Document, values: dict[str, Any]) -> Counted:
    """Count a conversation that has been translated."""
    if not values["messages"]:
        raise Unproved(UNREAD)
    tokens, verdict = model.count_chat(Document(values, exact=document.exact))
    exact = verdict is None or verdict.exact
    told = TEXT_ONLY if exact else verdict or TEXT_ONLY
    return Counted(tokens, tokens, told, () if exact else media_in(values["messages"]))


def _embedding(model: Model, document: Document) -> Counted:
    """Texts, lists of ids, or conversations, one or several."""
    values = document.values
    given: Any = values.get("messages", values.get("input"))
    if _is_conversation(given):
        counts = [_embedded_chat(model, document, given)]
    elif isinstance(given, list) and given and all(map(_is_conversation, given)):
        counts = [_embedded_chat(model, document, one) for one in given]
    else:
        special = bool(values.get("add_special_tokens", True))
        counts = [_tokens(model, one, special=special) for one in _prompts(given)]
    if type(limit := values.get("truncate_prompt_tokens")) is int and limit >= 0:
        counts = [min(count, limit) for count in counts]
    verdict = TEXT_ONLY if model.encoder is not None and limit != -1 else UNREAD
    return Counted(sum(counts), max(counts), verdict)


def _embedded_chat(model: Model, document: Document, messages: list[Any]) -> int:
    chat = document.values | {"messages": messages}
    chat.setdefault("add_generation_prompt", False)
    for name in ("input", "encoding_format", "dimensions", "use_activation"):
        chat.pop(name, None)
    return _chat(model, document, chat).tokens


def _score(model: Model, document: Document) -> Counted:
    """A query with each of its documents, or pairs, whatever the fields are called."""
    values = document.values
    left = next((values[n] for n in ("query", "queries", "text_1", "data_1") if n in values), None)
    names = ("documents", "items", "text_2", "data_2")
    right = next((values[n] for n in names if n in values), None)
    first, second = _texts(left), _texts(right)
    if not first or not second:
        raise Unproved(UNREAD)
    one = [_tokens(model, text, special=False) for text in first]
    two = [_tokens(model, text, special=False) for text in second]
    if len(one) == 1:
        one *= len(two)
    pairs = [q + d for q, d in zip(one, two, strict=False)]
    return Counted(sum(pairs), max(pairs), PAIRS)


def _by_size(document: Document) -> Counted:
    tokens = len(document.rest) // _BYTES_PER_TOKEN + 1
    return Counted(tokens, tokens, UNREAD)


def _unread(_model: Model, document: Document) -> Counted:
    messages = document.values.get("messages")
    return replace(_by_size(document), media=media_in(messages))


def _texts(given: Any) -> list[str]:
    texts = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise Unproved(UNREAD)
    return texts


def _prompts(given: Any) -> Iterable[Any]:
    """One prompt or several: a text or a list of numbers is one."""
    if not isinstance(given, list) or not given:
        return [given]
    return [given] if type(given[0]) is int else given


def _tokens(model: Model, prompt: Any, *, special: bool) -> int:
    if isinstance(prompt, str):
        return model.count_text(prompt, special=special)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    raise Unproved(UNREAD)


def _is_conversation(given: Any) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(message, dict) and "role" in message for message in given)
    )


def _whole(value: Any) -> int | None:
    return min(value, MOST_TOKENS) if type(value) is int and value >= 0 else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


SHAPES: Final[Mapping[Kind, Shape]] = {
    Kind.RESPONSES: Shape(_responses, guess="input", room="max_output_tokens"),
    Kind.MESSAGES: Shape(_messages, guess="messages", room="max_tokens"),
    Kind.EMBEDDING: Shape(_embedding),
    Kind.SCORE: Shape(_score),
    Kind.UNREAD: Shape(_unread, room="max_tokens"),
}
