"""The text that a simulated engine answers with: derived from the prompt's ids, always the same."""

import zlib
from dataclasses import dataclass
from itertools import cycle, islice

from bench.fake_vllm.prompts import Prompts

TAIL = 512
"""Only this many ids at the end of a prompt are decoded: the cost must not grow with the prompt."""

QUOTE = 160

FRAME = (
    "You wrote “",
    "”, which makes ",
    " tokens with what stands around it. I am a simulated engine: I cannot know the answer, but I "
    "send one at the pace of a real engine.",
)
"""What stands around the quoted prompt and the number of its tokens."""

SENTENCES = (
    " Each token of this answer leaves the engine in a step of its own, together with one token of "
    "each other answer in the batch.",
    " A long prompt would have taken several steps to read, and all the others would have waited.",
    " The gateway counted these tokens before the engine saw them, chose a queue by that number, "
    "and sent the ids instead of the text.",
    " How long the first word took is the number to watch: reading the prompt is most of it.",
    " When you close the connection, the engine stops at the next step and gives its memory back.",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """`pieces` is each token's share of the text; the end-of-sequence token has none."""

    ids: list[int]
    pieces: list[str]
    finish_reason: str = "stop"

    def __add__(self, other: "Answer") -> "Answer":
        return Answer(self.ids + other.ids, self.pieces + other.pieces)

    def cut(self, tokens: int) -> "Answer":
        if len(self.ids) <= tokens:
            return self
        return Answer(self.ids[:tokens], self.pieces[:tokens], "length")

    def repeated(self, tokens: int) -> "Answer":
        ids, pieces = cycle(self.ids), cycle(self.pieces)
        return Answer(list(islice(ids, tokens)), list(islice(pieces, tokens)), "length")


class Answers:
    """Composes answers with one tokenizer; what does not depend on the prompt is encoded once."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._frame = [self._said(text) for text in FRAME]
        end = Answer([], []) if prompts.eos is None else Answer([prompts.eos], [""])
        rotations = (SENTENCES[i:] + SENTENCES[:i] for i in range(len(SENTENCES)))
        self._closings = [self._said("".join(texts[:2])) + end for texts in rotations]

    def compose(self, prompt: list[int], max_tokens: int, *, endless: bool) -> Answer:
        """Up to `max_tokens` tokens; `endless` fills them all, as `ignore_eos` does in vLLM."""
        asked = _asked(self._prompts.decode(prompt[-TAIL:], special=True))
        quoted, counted = self._said(_shortened(asked)), self._said(str(len(prompt)))
        wrote, makes, known = self._frame
        closing = self._closings[zlib.crc32(asked.encode()) % len(SENTENCES)]
        whole = wrote + quoted + makes + counted + known + closing
        return whole.repeated(max_tokens) if endless else whole.cut(max_tokens)

    def _said(self, text: str) -> Answer:
        ids = self._prompts.encode(text, special=False)
        return Answer(ids, self._prompts.pieces(ids))


def _asked(tail: str) -> str:
    """The last message of a ChatML prompt that is not the assistant's, or a prompt's last words."""
    turns = tail.split("<|im_start|>")
    said = [turn for turn in turns if not turn.startswith("assistant")]
    if len(turns) == 1 or not said:
        return tail[-QUOTE:].strip()
    return said[-1].removeprefix("user\n").partition("<|im_end|>")[0].strip()


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    if len(flat) <= QUOTE:
        return flat
    return f"{flat[: QUOTE // 2].rstrip()} … {flat[-QUOTE // 2 :].lstrip()}"
