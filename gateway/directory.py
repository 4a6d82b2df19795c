"""What the request path may ask about models and backends: a table with one row per backend.

The catalogue writes the rows, in the process that knows the backends; a relay process has a copy
(`gateway.node`). A row is replaced as a whole and never changed, so whoever holds one holds a
consistent answer. How rows come about is not decided here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from backends.types import BackendSpec, Channel, ServedModel
from tokenizer_pool.types import Kind


@dataclass(frozen=True, slots=True)
class Standing:
    """How one model's prompts go to one backend, and why (`reason` is for a person)."""

    chat: Channel
    completions: Channel
    reason: str

    def takes_ids(self, kind: Kind) -> bool:
        channel = self.chat if kind is Kind.CHAT else self.completions
        return channel is Channel.IDS


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

    def put(self, backend: str, row: Row) -> None:
        self.rows[backend] = row
        self._models = self._union()

    def remove(self, backend: str) -> None:
        if self.rows.pop(backend, None) is not None:
            self._models = self._union()

    def context_length(self, model: str) -> int | None:
        """The longest context, in tokens, that a backend offers for the model."""
        served = self._models.get(model)
        return None if served is None else served.max_model_len

    def takes_ids(self, backend: str, model: str, kind: Kind) -> bool:
        row = self.rows.get(backend)
        standing = None if row is None else row.standings.get(model)
        return standing is not None and standing.takes_ids(kind)

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

    def _union(self) -> dict[str, ServedModel]:
        models: dict[str, ServedModel] = {}
        for row in self.rows.values():
            for model in row.models:
                known = models.get(model.name)
                if known is None or (known.max_model_len or 0) < (model.max_model_len or 0):
                    models[model.name] = model
        return models
