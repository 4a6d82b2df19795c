"""Watches that engines go on using the ids they are given: their count against ours, and their ids.

The proof at registration can go stale, by a change behind the same address for one. So every
answer to ids tells its usage, and a sample of them the ids it was computed from (`extras` takes
both out again where the client did not ask). Each must be ours exactly; after a few differences the
backend's prompts for that model go as text until an operator or a restart clears it.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from gateway.extras import BodyFilter, Filter, StreamFilter
from tokenizer_pool.types import TokenizedPrompt, Wanted

log = logging.getLogger("forebay.watchdog")

# Inside a JSON string the quotes would be escaped, so a model's words cannot look like this.
_USAGE = re.compile(rb'"usage":\s*\{"prompt_tokens":\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Watch:
    """Every `sample`-th request is asked for its ids (0: none); `tolerated` differences are."""

    sample: int = 1000
    tolerated: int = 2


class Watchdog:
    """`distrust(backend, model, reason)` is called once the differences are too many.

    `counted(backend, model)` hears of each.
    """

    def __init__(
        self,
        watch: Watch,
        distrust: Callable[[str, str, str], None],
        counted: Callable[[str, str], None],
    ) -> None:
        self._watch = watch
        self._distrust = distrust
        self._counted = counted
        self._differences: Counter[tuple[str, str]] = Counter()
        self._requests = 0

    def wanted(self, *, ids: bool, text: bool) -> Wanted:
        """What the next request's body must be: in these forms, and asking what is watched."""
        if not ids:
            return _TEXT
        self._requests += 1
        if self._watch.sample and self._requests % self._watch.sample == 0:
            return _SAMPLED[text]
        return _WATCHED[text]

    def check(
        self, backend: str, prompt: TokenizedPrompt, seen: Filter | None, tail: bytes
    ) -> None:
        """Judge the answer to ids by what its filter saw of it or, without one, by its end."""
        theirs = None if seen is None else seen.prompt_tokens
        if theirs is None and (found := _USAGE.search(tail)) is not None:
            theirs = int(found[1])
        if theirs is not None and theirs != prompt.prompt_tokens:
            self._differs(
                (backend, prompt.model),
                f"it counted {theirs} tokens where we sent {prompt.prompt_tokens}",
            )
        elif seen is not None and seen.prompt_ids and not _ends_with(prompt.ids, seen.prompt_ids):
            self._differs((backend, prompt.model), "it used other token ids than those we sent")

    def _differs(self, pair: tuple[str, str], what: str) -> None:
        self._differences[pair] += 1
        self._counted(*pair)
        log.error("backend %s, model %s: %s", *pair, what)
        if self._differences[pair] > self._watch.tolerated:
            del self._differences[pair]
            self._distrust(*pair, f"{what}; text until an operator or a restart clears it")


def filter_of(prompt: TokenizedPrompt) -> Filter | None:
    """What must stand between the answer to the prompt's ids and the client, if anything."""
    if prompt.stream and (prompt.added_usage or prompt.added_prompt_ids):
        return StreamFilter(usage=prompt.added_usage, ids=prompt.added_prompt_ids)
    return BodyFilter() if prompt.added_prompt_ids else None


_BRACES = 2  # after the ids: of the parameters they are in, of the request
_TEXT = Wanted(ids=False)
_WATCHED = {text: Wanted(text=text, usage=True) for text in (False, True)}
_SAMPLED = {text: Wanted(text=text, usage=True, prompt_ids=True) for text in (False, True)}


def _ends_with(body: bytes, ids: bytes) -> bool:
    """Are these (JSON) the ids at the end of the request's body?"""
    compact = orjson.dumps(orjson.loads(ids))
    end = bytes(body[-len(compact) - _BRACES :])  # a large body is a memoryview, and not copied
    return end.rstrip(b"}").endswith(compact)
