"""The types that cross the tokenizer pool's border."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """Which API a body belongs to. Prompts of the first two can travel as token ids, those of the
    others are counted only; UNREAD is any JSON object whose prompt is not looked for."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSES = "responses"
    MESSAGES = "messages"
    EMBEDDING = "embedding"
    SCORE = "score"
    UNREAD = "unread"

    # There is one of each; an enum's own hash is a function in Python, and tables are asked often.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Where a model's tokenizer and chat template come from: a local directory or a hub id."""

    model: str
    location: str | Path


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """What an operator may choose about the pool. Sizes are bytes, durations seconds.

    Bodies up to `inline_max_bytes` are prepared on the event loop when both fast engines are in
    use for the model; above it, or with a reference engine, in worker processes: `workers` for
    bodies over `inline_max_bytes`, and one more lane of `short_workers` for smaller ones, started
    only when a model needs it, and one of `media_workers` for those over it that seem to bear
    pictures or sounds, started by the first of them. A lane holds at most `queue_limit` waiting
    bodies and `queue_bytes` bytes of them. A worker that needs longer than `job_timeout` is killed;
    one whose peak memory grew by more than `worker_memory` since its models were loaded is replaced
    when its work is done.
    `segment_cache_bytes` bounds, per process and model, the memory of text segments that were
    encoded before, for all tenants together; 0 switches it off (docs/adr/preparing-bodies.md).
    After `lull` seconds without a body the event loop may be held up for loading a model; after
    `lull_patience` seconds it is in any case.
    """

    cache_dir: Path
    workers: int = 1
    short_workers: int = 1
    media_workers: int = 1
    inline_max_bytes: int = 16 * 1024
    queue_limit: int = 256
    queue_bytes: int = 256 * 1024 * 1024
    job_timeout: float = 20.0
    worker_memory: int = 1024**3
    extract_timeout: float = 300.0
    segment_cache_bytes: int = 32 * 1024 * 1024
    lull: float = 30.0
    lull_patience: float = 600.0


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Which engines serve a model and why.

    Engines are `fastokens` or `tokenizers`, `minijinja` or `jinja2`; `none` where the model goes
    as text. `notes` say why a fast engine was not taken. `chat_ineligible` is the reason why no
    chat of this model can travel as ids (None: they can).
    """

    model: str
    encode_engine: str
    template_engine: str
    vocabulary: int
    chat_ineligible: str | None = None
    completion_ineligible: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheReport:
    """Text segments that were encoded before (hits) or not, and the bytes of their text."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0

    def __add__(self, other: "CacheReport") -> "CacheReport":
        return CacheReport(
            self.hits + other.hits,
            self.misses + other.misses,
            self.hit_bytes + other.hit_bytes,
            self.miss_bytes + other.miss_bytes,
        )

    def __sub__(self, other: "CacheReport") -> "CacheReport":
        return CacheReport(
            self.hits - other.hits,
            self.misses - other.misses,
            self.hit_bytes - other.hit_bytes,
            self.miss_bytes - other.miss_bytes,
        )


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane's workers (running / wanted), what waits in it, and what has happened to it."""

    name: str
    workers: int
    wanted: int
    queued: int
    queued_bytes: int
    done: int
    restarts: int
    cache: CacheReport


@dataclass(frozen=True, slots=True)
class PoolReport:
    models: tuple[ModelReport, ...]
    lanes: tuple[LaneReport, ...]
    inline: int
    inline_cache: CacheReport = CacheReport()


@dataclass(frozen=True, slots=True)
class TokenList:
    """Token ids as a ready JSON array, so that nobody iterates over them on the loop.

    `strings` has the tokens as the vocabulary spells them, where the request wanted them.
    """

    model: str
    count: int
    ids: bytes = field(repr=False)
    strings: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which forms of a request's body are needed, and what the answer to ids shall tell.

    Of `ids` and `text` the one that is not wanted is left out where the other can be had. `usage`:
    a stream shall end with its usage; `prompt_ids`: the answer shall name the ids it is computed
    from. What the client did not ask for itself must be taken out of the answer again.
    """

    ids: bool = True
    text: bool = True
    usage: bool = False
    prompt_ids: bool = False


@dataclass(slots=True)
class TokenizedPrompt:
    """A validated request, ready to go upstream in either channel.

    `text` and `ids` are whole upstream bodies, the two ways to say the prompt; one that was not
    wanted is empty. `ids` is also empty when this request is not eligible for the ids channel, and
    `ineligible` says why. `added_usage` and `added_prompt_ids`: the ids body asks for something
    that the client's does not. `exact` is False when the count is an estimate. `prefix` has a hash
    for each beginning of the prompt that is a multiple of 256 tokens long (tokenizer_pool.prefix).
    Of several prompts in one request `prompt_tokens` is the sum and `longest` the longest one.
    `media` are pictures and the like by kind, which `prompt_tokens` does not include; `previous` is
    the stored response that this request goes on from.

    Nobody changes it; it is not frozen because that would make it four times as costly to make.
    """

    model: str
    prompt_tokens: int
    max_tokens: int | None
    stream: bool
    exact: bool = True
    ineligible: str | None = None
    added_usage: bool = False
    added_prompt_ids: bool = False
    text: bytes = field(default=b"", repr=False)
    ids: bytes = field(default=b"", repr=False)
    prefix: tuple[int, ...] = field(default=(), repr=False)
    longest: int = 0
    media: tuple[tuple[str, int], ...] = ()
    previous: str | None = None

    def body(self, *, ids: bool) -> bytes:
        """The upstream JSON document, with token ids where wanted and available, else text.

        Empty when that form was not wanted of the pool.
        """
        return self.ids if ids and self.ids else self.text
