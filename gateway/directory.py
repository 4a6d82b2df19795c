"""What the request path may ask about models and backends: a table with one row per backend.

The catalogue writes the rows, in the process that knows the backends; a relay process has a copy
(`gateway.node`). A row is replaced as a whole and never changed, so whoever holds one holds a
consistent answer. How rows come about is not decided here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from backends.types import BackendSpec, Channel, ServedModel
from gateway.bands import Band, channel_of
from tokenizer_pool.types import Kind, TokenizedPrompt

_LONGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Standing:
    """How one model's prompts go to one backend, and why (`reason` is for a person).

    `chat` and `completions` are the channels that are proved. Where that is ids, the bands say for
    which prompts they are used.
    """

    chat: Channel
    completions: Channel
    reason: str
    chat_bands: tuple[Band, ...] = ()
    completion_bands: tuple[Band, ...] = ()

    def channel(self, kind: Kind, tokens: int) -> Channel:
        """How a prompt of so many tokens goes."""
        proved = self.chat if kind is Kind.CHAT else self.completions
        return channel_of(self._bands(kind), tokens) if proved is Channel.IDS else Channel.TEXT

    def channels(self, kind: Kind) -> set[Channel]:
        """How prompts of any length go."""
        bands = self._bands(kind)
        return {self.channel(kind, band.up_to or _LONGEST) for band in bands} or {
            self.channel(kind, _LONGEST)
        }

    def _bands(self, kind: Kind) -> tuple[Band, ...]:
        return self.chat_bands if kind is Kind.CHAT else self.completion_bands


@dataclass(frozen=True, slots=True)
class Row:
    """One backend: where it is, whether it takes traffic, what it serves, and how it wants each
    model's prompts. Without standings nobody knows yet what it serves."""

    spec: BackendSpec | None = None
    ready: bool = False
    models: tuple[ServedModel, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)


class Directory:
    """The rows by backend, and the questions that requests ask of them."""

    def __init__(self, backends: Iterable[str] = ()) -> None:
        self.rows: dict[str, Row] = {name: Row() for name in backends}
        self._models: dict[str, ServedModel] = {}
        self._forms = dict.fromkeys(Kind, (True, True))

    def put(self, backend: str, row: Row) -> None:
        self.rows[backend] = row
        self._summarise()

    def remove(self, backend: str) -> None:
        if self.rows.pop(backend, None) is not None:
            self._summarise()

    def context_length(self, model: str) -> int | None:
        """The longest context, in tokens, that a backend offers for the model."""
        served = self._models.get(model)
        return None if served is None else served.max_model_len

    def takes_ids(self, backend: str, kind: Kind, prompt: TokenizedPrompt) -> bool:
        """Does the prompt go to this backend by ids?"""
        row = self.rows.get(backend)
        standing = None if row is None else row.standings.get(prompt.model)
        if standing is None:
            return False
        return standing.channel(kind, prompt.prompt_tokens) is Channel.IDS

    def forms(self, kind: Kind) -> tuple[bool, bool]:
        """Does any backend take ids, and does any take text? Both, while none is known."""
        return self._forms[kind]

    def ready_for(self, model: str) -> frozenset[str]:
        """The names of the backends that take traffic and serve the model."""
        return frozenset(
            name for name, row in self.rows.items() if row.ready and model in row.standings
        )

    def unexplored(self) -> list[str]:
        """The backends of which nobody knows yet what they serve. Where there is no backend at all
        they have yet to be discovered, and nobody knows what those will serve."""
        unknown = [name for name, row in self.rows.items() if not row.standings]
        return unknown if self.rows else ["none was found yet"]

    def models(self) -> list[ServedModel]:
        """Every served model, with the longest context that a backend offers for it."""
        return list(self._models.values())

    def any_ready(self) -> bool:
        return any(row.ready for row in self.rows.values())

    def _summarise(self) -> None:
        """What requests ask of all rows together, found out once for all of them."""
        self._models = self._union()
        for kind in Kind:
            used = {
                channel
                for row in self.rows.values()
                for standing in row.standings.values()
                for channel in standing.channels(kind)
            }
            self._forms[kind] = (
                (Channel.IDS in used, Channel.TEXT in used) if used else (True, True)
            )

    def _union(self) -> dict[str, ServedModel]:
        models: dict[str, ServedModel] = {}
        for row in self.rows.values():
            lengths = {model.name: model.max_model_len for model in row.models}
            for served in row.models:
                # vLLM tells no length for an adapter: it has its base model's.
                length = served.max_model_len or lengths.get(served.parent or "")
                model = replace(served, max_model_len=length)
                known = models.get(model.name)
                if known is None or (known.max_model_len or 0) < (model.max_model_len or 0):
                    models[model.name] = model
        return models
