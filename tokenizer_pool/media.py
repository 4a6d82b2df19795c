"""Pictures, sounds and films in a request: how many there are of each kind.

What one of them costs in tokens depends on the model and its processor; whoever admits requests
learns that from the answers. Nothing here looks into a medium.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

_KINDS: Final = {
    "image": "image",
    "image_url": "image",
    "image_embeds": "image",
    "image_pil": "image",
    "input_image": "image",
    "input_file": "image",
    "audio_url": "audio",
    "audio_embeds": "audio",
    "input_audio": "audio",
    "video_url": "video",
}
# "media_type" is Anthropic's.
_MARKS: Final = (*(kind for kind in _KINDS if kind != "image"), "media_type")
# One expression: it leaps from quote to quote, where a search for each mark walks all of a text.
_MARK: Final = re.compile(f'"(?:{"|".join(_MARKS)})"'.encode())
_LONGEST_MARK: Final = max(map(len, _MARKS)) + 2
_STEP: Final = 256 * 1024

Media = tuple[tuple[str, int], ...]


def media_in(conversation: Any) -> Media:
    """The kinds of media in messages or items, each with its number, in alphabetical order."""
    return tuple(sorted(Counter(_kinds(conversation)).items()))


async def may_have_media(body: bytes) -> bool:
    """Whether a body that is still unparsed has some, most likely: good enough to pick a lane.

    In steps: all at once, a text with many quotes would keep the event loop for some 40 ms.
    """
    for start in range(0, len(body), _STEP):
        if start:
            await asyncio.sleep(0)
        if _MARK.search(body, start, start + _STEP + _LONGEST_MARK):
            return True
    return False


def _kinds(conversation: Any) -> Iterator[str]:
    for message in conversation if isinstance(conversation, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                yield from _kinds_of(part)


def _kinds_of(part: dict[str, Any]) -> Iterator[str]:
    kind = part.get("type")
    if isinstance(kind, str) and kind in _KINDS:
        yield _KINDS[kind]
    elif kind is None:  # vLLM guesses from the key that says where the medium is
        yield from (_KINDS[name] for name in part.keys() & _KINDS.keys())
    elif kind == "tool_result":  # Anthropic's: blocks within a block
        yield from _kinds([part])
