"""Text to token ids: the reference engine (`tokenizers`) and the fast one (`fastokens`).

Ids are numpy arrays of uint32 or ready JSON bytes, never Python lists. Which engine serves a
model is decided by parity; templates are rendered elsewhere.
"""

from pathlib import Path
from typing import ClassVar, Final, Protocol

import fastokens
import numpy
import orjson
import tokenizers
from numpy.typing import NDArray

from tokenizer_pool.types import CacheReport

Ids = NDArray[numpy.uint32]
_LITTLE: Final = numpy.dtype("<u4")


class EngineUnavailable(Exception):
    """The fast engine cannot load this tokenizer; the message says why."""


class EncodeEngine(Protocol):
    """One loaded tokenizer."""

    name: ClassVar[str]

    def encode(self, text: str, *, special: bool) -> Ids:
        """The ids of `text`, with the tokenizer's own special tokens around when `special`."""
        ...

    def cache_report(self) -> CacheReport:
        """What the engine's cache of text segments has saved so far."""
        ...


class ReferenceEncoder:
    """Hugging Face `tokenizers`: what vLLM runs by default, and the judge of the fast engine."""

    name: ClassVar[str] = "tokenizers"

    def __init__(self, path: Path) -> None:
        """Raises EngineUnavailable when the file is not a tokenizer."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise EngineUnavailable(str(error)) from error

    def encode(self, text: str, *, special: bool) -> Ids:
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0]
        return numpy.array(encoding.ids, dtype=numpy.uint32)

    def cache_report(self) -> CacheReport:
        return CacheReport()

    def decode(self, ids: list[int]) -> str:
        """The text of the ids, special tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def tokens(self, ids: list[int]) -> list[str]:
        """The tokens as the vocabulary spells them."""
        return [self._tokenizer.id_to_token(number) or "" for number in ids]

    def vocabulary(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))


class FastEncoder:
    """`fastokens`: 50 to 100 times faster, exact where parity has proved it."""

    name: ClassVar[str] = "fastokens"

    def __init__(self, path: Path, *, cache_bytes: int = 0) -> None:
        """`cache_bytes` bounds its cache of the text between added tokens; 0 is no cache.

        Raises EngineUnavailable when fastokens does not know this kind of tokenizer.
        """
        try:
            self._tokenizer = fastokens.Tokenizer.from_file(str(path))
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise EngineUnavailable(str(error)) from error
        if cache_bytes:
            self._tokenizer.enable_segment_cache(cache_bytes)
        # Its first call builds tables for some 100 ms; no request shall pay for that.
        self.encode("warm up", special=True)

    def encode(self, text: str, *, special: bool) -> Ids:
        flat, _ = self._tokenizer.encode_batch_flat([text], add_special_tokens=special)
        return numpy.frombuffer(flat, _LITTLE)

    def cache_report(self) -> CacheReport:
        stats = self._tokenizer.segment_cache_stats()
        if stats is None:
            return CacheReport()
        return CacheReport(stats["hits"], stats["misses"], stats["hit_bytes"], stats["miss_bytes"])


def ids_json(ids: Ids) -> bytes:
    """The ids as a JSON array."""
    return orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)
