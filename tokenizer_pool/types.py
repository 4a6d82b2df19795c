"""The types that cross the tokenizer pool's border."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """Which of the two prompt-bearing APIs a body belongs to."""

    CHAT = "chat"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Where a model's tokenizer and chat template come from: a local directory or a hub id."""

    model: str
    location: str | Path


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A validated request, ready to go upstream in either channel.

    The upstream body is spliced from ready bytes: `fields` is the JSON object without its
    prompt and without the closing brace, `text` and `ids` are the two ways to say the prompt.
    `ids` is empty when this request is not eligible for the ids channel, and `ineligible` says
    why. `exact` is False when the count is an estimate.
    """

    model: str
    prompt_tokens: int
    max_tokens: int | None
    stream: bool
    exact: bool = True
    ineligible: str | None = None
    fields: bytes = field(default=b"", repr=False)
    text: bytes = field(default=b"", repr=False)
    ids: bytes = field(default=b"", repr=False)

    def body(self, *, ids: bool) -> bytes:
        """The upstream JSON document, with token ids where wanted and available, else text."""
        prompt = self.ids if ids and self.ids else self.text
        return b"%b%b}" % (self.fields, prompt)
