"""How long an answer was, in tokens, from what it said of itself."""

import re

from gateway.extras import Filter

# Inside a JSON string the quotes would be escaped, so a model's words cannot look like this.
_TOKENS = re.compile(rb'"(?:completion|output)_tokens":\s*(\d{1,9})')


def answer_tokens(seen: Filter | None, tail: bytes) -> int | None:
    """None when the answer did not say: a stream that was not asked for its usage."""
    if seen is not None and seen.answer_tokens is not None:
        return seen.answer_tokens
    found = _TOKENS.findall(tail)
    return int(found[-1]) if found else None
