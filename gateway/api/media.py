"""What a picture, a sound or a film costs in prompt tokens, learned from the engines' own counts.

The cost depends on the model and its processor, and mostly not on the text beside it. So for each
model and kind there is a running mean of what the answers' `usage` says beyond the text. It serves
to put a request in its class; the engine does the true count.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_WEIGHT: Final = 0.2
_LIMIT: Final = 1_000_000
_MODELS: Final = 256
# Before any answer: a picture of 768 x 768 pixels, half a minute of sound, some seconds of film.
FIRST_GUESS: Final[Mapping[str, float]] = {"image": 800, "audio": 750, "video": 4000}
# Inside a JSON string the quotes would be escaped, so a model's words cannot look like this.
_USAGE: Final = re.compile(rb'"usage":\s*\{"(?:prompt|input)_tokens":\s*(\d{1,9})')

Media = Iterable[tuple[str, int]]


class MediaCosts:
    """Tokens per medium, by model and kind; bounded by `_MODELS` models."""

    def __init__(self) -> None:
        self._means: dict[str, dict[str, float]] = {}

    def guess(self, model: str, media: Media) -> int:
        """The tokens of these media together."""
        means = self._means.get(model, FIRST_GUESS)
        return round(sum(means[kind] * number for kind, number in media))

    def learn(self, model: str, media: tuple[tuple[str, int], ...], text: int, tail: bytes) -> None:
        """Take in the end of an answer to a request with these media and `text` other tokens.

        Only requests with one kind of media tell what it costs.
        """
        found = _USAGE.search(tail)
        if found is None or len(media) != 1:
            return
        ((kind, number),) = media
        each = min(max(int(found[1]) - text, 1) / number, _LIMIT)
        if model not in self._means and len(self._means) >= _MODELS:
            self._means.pop(next(iter(self._means)))
        means = self._means.setdefault(model, dict(FIRST_GUESS))
        means[kind] += _WEIGHT * (each - means[kind])
