"""The last good settings in a local file: what a gateway that starts without Redis goes on with."""

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import orjson

from gateway.control.versions import Version, document

log = logging.getLogger("forebay.control")


class Snapshot:
    """One file. It belongs to one Redis: that of another one is not read."""

    def __init__(self, path: Path, redis: str) -> None:
        self._path = path
        self._redis = hashlib.sha256(redis.encode()).hexdigest()[:16]

    def load(self) -> Version | None:
        """None when there is nothing usable; what is wrong with it is logged."""
        try:
            found: dict[str, Any] = orjson.loads(self._path.read_bytes())
            if found["redis"] != self._redis:
                return None
            return Version(int(found["version"]), found["digest"], document(found["state"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the settings snapshot %s is of no use: %s", self._path, error)
            return None

    def save(self, version: Version) -> None:
        """Replace the file as a whole; a failure is logged and costs nothing else."""
        content = {
            "redis": self._redis,
            "version": version.number,
            "digest": version.digest,
            "state": version.state,
        }
        beside = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.touch(mode=0o600)
            beside.write_bytes(orjson.dumps(content))
            beside.replace(self._path)
        except OSError as error:
            log.warning("the settings could not be kept in %s: %s", self._path, error)
