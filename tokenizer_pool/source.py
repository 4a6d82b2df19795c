"""From a TokenizerSource to an artifact on disk: find the files, extract once, keep the result.

Heavy work runs in short-lived child processes; hashing runs in a thread. A hub id is taken from
the local hub cache, and downloaded only when the environment does not forbid it.
"""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tokenizer_pool.artifact import cache_key
from tokenizer_pool.errors import TokenizerUnavailable
from tokenizer_pool.types import TokenizerSource

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_TRUE: Final = frozenset({"1", "ON", "YES", "TRUE"})
_MARKS: Final = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def _hub_cache() -> Path:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def _cached_snapshot(hub_id: str) -> Path | None:
    repository = _hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if any((snapshot / mark).exists() for mark in _MARKS) else None


async def _run(arguments: list[str], *, limit: float, offline: bool) -> str:
    """Output of `python -m ...`; raises TokenizerUnavailable with the child's last line."""
    environment = dict(os.environ)
    if offline:
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise TokenizerUnavailable(f"{arguments[0]} took longer than {limit:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or ["no message"]
        raise TokenizerUnavailable(lines[-1])
    return out.decode().strip()


def _find(source: TokenizerSource) -> Path | None:
    """The files on this machine; None for a hub id that may be downloaded."""
    location = str(source.location)
    directory = Path(location)
    if directory.is_dir():
        return directory
    if not _HUB_ID.fullmatch(location):
        raise TokenizerUnavailable(
            f"{location!r} is not a directory on this machine; copy the tokenizer files of "
            f"{source.model!r} here and name their directory, or name a hub id"
        )
    snapshot = _cached_snapshot(location)
    if snapshot is None and os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        raise TokenizerUnavailable(
            f"the hub id {location!r} is not in the local cache {str(_hub_cache())!r} and "
            "HF_HUB_OFFLINE is set; fetch it on a machine that is online (hf download "
            f"{location}), or name a local directory"
        )
    return snapshot


async def locate(source: TokenizerSource, *, limit: float) -> Path:
    """The local directory with the model's tokenizer files; raises TokenizerUnavailable.

    A download may take `limit` seconds.
    """
    directory = await asyncio.to_thread(_find, source)
    if directory is None:
        arguments = ["tokenizer_pool.fetch", str(source.location)]
        directory = Path(await _run(arguments, limit=limit, offline=False))
    return directory


def _scratch(cache_dir: Path) -> Path:
    cache_dir.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="extract-", dir=cache_dir))


def _keep(scratch: Path, path: Path) -> None:
    # Another process may have been faster; both results are the same.
    if not path.exists():
        scratch.rename(path)


async def artifact_path(source: TokenizerSource, cache_dir: Path, *, limit: float) -> Path:
    """The directory of the source's artifact, made now unless it is there already.

    `limit` is in seconds, for each child process. Raises TokenizerUnavailable.
    """
    directory = await locate(source, limit=limit)
    path = cache_dir / await asyncio.to_thread(cache_key, directory)
    if await asyncio.to_thread((path / "artifact.json").exists):
        return path
    scratch = await asyncio.to_thread(_scratch, cache_dir)
    try:
        arguments = ["tokenizer_pool.extract", str(directory), str(scratch)]
        await _run(arguments, limit=limit, offline=True)
        await asyncio.to_thread(_keep, scratch, path)
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    return path
