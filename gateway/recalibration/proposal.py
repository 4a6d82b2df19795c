"""What the reckoning is told of the settings in force, and what it proposes."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from gateway.config import Config


class NoProposal(Exception):
    """The reckoning failed; it has said why."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field of one key, as `forebay ctl set` takes it."""

    key: str
    field: str
    before: int
    after: int
    why: str


def settings_of(config: Config) -> dict[str, Any]:
    """The classes and backends, as plain values."""
    classes = {"max_prompt_tokens", "ttft_target", "limit", "spill"}
    return {
        "classes": {n: c.model_dump(include=classes) for n, c in config.classes.items()},
        "backends": {
            n: b.model_dump(include={"classes", "limit"}) for n, b in config.backends.items()
        },
    }


def ask(config: Config, logs: Sequence[Path], result: Path, options: Sequence[str]) -> list[Change]:
    """Let it reckon; its words go where ours do, its costs to `result`. Raises NoProposal."""
    with tempfile.TemporaryDirectory(prefix="forebay-recalibrate-") as folder:
        settings = Path(folder) / "settings.json"
        settings.write_bytes(orjson.dumps(settings_of(config)))
        named = [option for path in logs for option in ("--log", str(path))]
        ended = subprocess.run(  # noqa: S603
            [
                *(sys.executable, "-m", "bench.recalibrate", "--settings", str(settings)),
                *("--json", str(result), *named, *options),
            ],
            check=False,
        )
    if ended.returncode:
        raise NoProposal(f"it ended with status {ended.returncode}")
    changes: list[dict[str, Any]] = orjson.loads(result.read_bytes())["detail"]["changes"]
    return [Change(**change) for change in changes]
