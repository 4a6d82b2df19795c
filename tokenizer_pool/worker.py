"""`python -m tokenizer_pool.worker FD PARENT`: the process that tokenizes what the loop must not.

Serves one socket, one request at a time, and ends when that socket closes or its parent dies. It
holds no other descriptor. A failure that is nobody's fault but ours ends the process: the lane
replaces it and tries once more.
"""

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import orjson

from tokenizer_pool import frames, requests, shapes
from tokenizer_pool.artifact import load_model
from tokenizer_pool.errors import InvalidRequest
from tokenizer_pool.model import Model
from tokenizer_pool.registry import resolve
from tokenizer_pool.types import CacheReport, Kind, Wanted

_PR_SET_PDEATHSIG: Final = 1


class Worker:
    """The models of one process and what it does with a frame."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def answer(self, parts: list[bytes]) -> list[bytes]:
        """The reply to one frame. Part 0 says what to do and, in the reply, how it went."""
        order = orjson.loads(parts[0])
        try:
            meaning, payload = self._do(order, parts[1:])
        except InvalidRequest as error:
            meaning = {"invalid": error.message, "param": error.param, "code": error.code}
            payload = []
        meaning["peak_memory"] = _peak_memory()
        meaning["cache"] = self._cache_report()
        return [orjson.dumps(meaning), *payload]

    def _cache_report(self) -> CacheReport:
        encoders = (model.encoder for model in self._models.values())
        reports = (encoder.cache_report() for encoder in encoders if encoder is not None)
        return sum(reports, CacheReport())

    def _load(self, name: str, path: str | None, cache_bytes: int) -> None:
        if path is None:
            self._models[name] = Model(name)
        else:
            self._models[name] = load_model(
                name, Path(path), on_loop=False, cache_bytes=cache_bytes
            )

    def _do(
        self, order: dict[str, Any], payload: list[bytes]
    ) -> tuple[dict[str, Any], list[bytes]]:
        match order["do"]:
            case "load":
                self._load(order["name"], order["path"], order["cache_bytes"])
                settle_memory()
                return {}, []
            case "prepare":
                return self._prepare(order, payload[0])
            case "tokenize":
                document = requests.parse_tokenize(payload[0], order.get("aliases", {}))
                tokens = resolve(self._models, document).tokenize(document)
                strings = [] if tokens.strings is None else [tokens.strings]
                return {"model": tokens.model, "count": tokens.count}, [tokens.ids, *strings]
            case "detokenize":
                document = requests.parse_detokenize(payload[0], order.get("aliases", {}))
                text = resolve(self._models, document).detokenize(document.values)
                return {}, [orjson.dumps({"prompt": text})]
            case unknown:
                raise AssertionError(f"the pool asked for {unknown!r}")

    def _prepare(self, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], list[bytes]]:
        kind = Kind(order["kind"])
        aliases = order.get("aliases", {})
        document = shapes.parse(body, kind, trusted=order["trusted"], aliases=aliases)
        model = resolve(self._models, document)
        prompt = shapes.prepare(model, kind, document, Wanted(**order["wanted"]))
        meaning = {
            "model": prompt.model,
            "prompt_tokens": prompt.prompt_tokens,
            "max_tokens": prompt.max_tokens,
            "stream": prompt.stream,
            "exact": prompt.exact,
            "ineligible": prompt.ineligible,
            "added_usage": prompt.added_usage,
            "added_prompt_ids": prompt.added_prompt_ids,
            "prefix": prompt.prefix,
            "longest": prompt.longest,
            "media": prompt.media,
            "previous": prompt.previous,
        }
        return meaning, [prompt.text, prompt.ids]


def _die_with_parent(parent: int) -> None:
    """Closing the socket ends an idle worker; a busy one must not outlive its parent either."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit


def _keep_only(descriptor: int) -> None:
    """Close what came along from the parent: not every event loop closes it when it forks."""
    os.closerange(sys.stderr.fileno() + 1, descriptor)
    os.closerange(descriptor + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _peak_memory() -> int:
    """Bytes. Not getrusage: its maximum counts what the parent had when it started us."""
    status = Path("/proc/self/status").read_bytes()
    return int(status.split(b"VmHWM:", 1)[1].split(maxsplit=1)[0]) * 1024


def settle_memory() -> None:
    """What was loaded stays for good: no garbage collection shall walk through it again.

    A request makes thousands of short-lived objects and hardly a cycle, so collect rarely.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def main() -> None:
    """The command line: the number of the inherited socket, and the parent's process id."""
    descriptor, parent = map(int, sys.argv[1:3])
    _die_with_parent(parent)
    _keep_only(descriptor)
    worker = Worker()
    with socket.socket(fileno=descriptor) as connection:
        while True:
            try:
                parts = frames.receive(connection)
            except (EOFError, ConnectionError):
                return
            connection.sendall(frames.pack(worker.answer(parts)))


if __name__ == "__main__":
    main()
