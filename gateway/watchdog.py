"""Watches that engines go on using the ids they are given: their count against ours.

The proof at registration can go stale, by a change behind the same address for one. Where an
answer has a `usage`, its `prompt_tokens` must be our exact count; after a few differences the
backend's prompts for that model go as text until it is proved again.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable

log = logging.getLogger("forebay.watchdog")

# Inside a JSON string the quotes would be escaped, so a model's words cannot look like this.
_USAGE = re.compile(rb'"usage":\s*\{"prompt_tokens":\s*(\d+)')
TOLERATED = 2


class Watchdog:
    """`distrust(backend, model, reason)` is called once the differences are too many."""

    def __init__(
        self, distrust: Callable[[str, str, str], None], counted: Callable[[str, str], None]
    ) -> None:
        self._distrust = distrust
        self._counted = counted
        self._differences: Counter[tuple[str, str]] = Counter()

    def check(self, backend: str, model: str, *, ours: int, tail: bytes) -> None:
        """Compare our count (tokens) with the one in the end of an answer, if it has one."""
        found = _USAGE.search(tail)
        if found is None or (theirs := int(found[1])) == ours:
            return
        self._differences[backend, model] += 1
        self._counted(backend, model)
        log.error(
            "backend %s counts %d tokens of %s where we sent %d", backend, theirs, model, ours
        )
        if self._differences[backend, model] > TOLERATED:
            del self._differences[backend, model]
            reason = (
                f"it counted {theirs} tokens where we sent {ours}; text until it is proved anew"
            )
            self._distrust(backend, model, reason)
