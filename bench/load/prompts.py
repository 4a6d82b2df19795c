"""Prompts of real words with an exact number of tokens, and with shared prefixes.

The words come from the corpus in the repository. Every text is encoded once more to prove its
length, so a tokenizer that merges across words costs time here, not exactness.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random

import fastokens
from tokenizers import Tokenizer

CORPUS = Path(__file__).resolve().parent.parent / "data" / "corpus"
WORD = re.compile(r"[A-Za-z]+[,.]?")
OPENING = 3
"""So many words at the start are drawn one by one: no prefix cache answers for another text."""

ATTEMPTS = 100
"""A text is made longer or shorter at most so often, and once for each of its tokens."""

Length = Callable[[str], int]
"""The number of a text's tokens, without special ones."""


class InexactTokenizer(Exception):
    """No text of the wanted number of tokens can be made with this tokenizer."""


def length_with(tokenizer_json: Path) -> Length:
    """Counts with fastokens, which is exact and some 50 times faster, else with tokenizers.

    Raises InexactTokenizer when the file cannot be read as a tokenizer.
    """
    try:
        fast = fastokens.Tokenizer.from_file(str(tokenizer_json))
    except (OSError, RuntimeError, TypeError, ValueError):
        return _reference(tokenizer_json)
    return lambda text: len(fast.encode_batch_flat([text], add_special_tokens=False)[0]) // 4


def _reference(tokenizer_json: Path) -> Length:
    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json.read_bytes())
    except (OSError, ValueError) as error:
        raise InexactTokenizer(f"{tokenizer_json}: {error}") from error
    return lambda text: len(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


class Prompts:
    """Makes texts for one tokenizer. The same arguments give the same text."""

    def __init__(self, length: Length) -> None:
        """Raises InexactTokenizer when no word of the corpus is one token."""
        self._length = length
        texts = [path.read_text() for path in sorted(CORPUS.glob("*.txt"))]
        words = [f" {word}" for text in texts for word in WORD.findall(text)]
        known = {word: length(word) for word in set(words)}
        self._fillers = sorted(word for word, tokens in known.items() if tokens == 1)
        if not self._fillers:
            raise InexactTokenizer("the tokenizer has no single token for any word of the corpus")
        # A word that is one token after a space may be two at the start of a text.
        alone = [word for word in self._fillers if length(word.removeprefix(" ")) == 1]
        self._openers = alone or self._fillers
        self._total = sum(known[word] for word in words)
        self._words = words + words  # twice, so that a stretch can begin anywhere
        self._ends = list(accumulate(known[word] for word in self._words))
        self._blocks: dict[tuple[int, int, str], str] = {}

    def text(self, tokens: int, seed: int) -> str:
        """A text of exactly `tokens` tokens that begins with a word, not with a space."""
        return self._exact(tokens, seed, leading="")

    def chained(self, tokens: int, prefix: Sequence[int], block: int) -> list[str]:
        """Parts of a text of `tokens` tokens: equal beginnings of `prefix` give equal parts.

        Each entry stands for `block` tokens, the last one for what remains.
        """
        sizes = [min(block, tokens - start) for start in range(0, tokens, block)]
        seeds = [*prefix, *(hash((*prefix, index)) for index in range(len(prefix), len(sizes)))]
        return [
            self._block(size, seed, "" if index == 0 else " ")
            for index, (size, seed) in enumerate(zip(sizes, seeds, strict=False))
        ]

    def _block(self, size: int, seed: int, leading: str) -> str:
        key = (size, seed, leading)
        if key not in self._blocks:
            self._blocks[key] = self._exact(size, seed, leading=leading)
        return self._blocks[key]

    def _exact(self, tokens: int, seed: int, *, leading: str) -> str:
        random = Random(seed)
        words = self._stretch(tokens, random)
        for _ in range(tokens + ATTEMPTS):
            text = leading + "".join(words).removeprefix(" ")
            missing = tokens - self._length(text)
            if missing == 0:
                return text
            if missing > 0:
                words += random.choices(self._fillers, k=missing)
            else:
                words.pop()
        raise InexactTokenizer(f"no text of {tokens} tokens found")

    def _stretch(self, tokens: int, random: Random) -> list[str]:
        """A few words by chance, then the corpus from a random place on: nearly enough."""
        opening = random.choices(self._openers, k=min(tokens, OPENING))
        rounds, rest = divmod(tokens - len(opening), self._total)
        size = len(self._words) // 2
        place = random.randrange(size)
        before = self._ends[place - 1] if place else 0
        end = bisect_right(self._ends, before + rest)
        return opening + self._words[place : place + size] * rounds + self._words[place:end]
