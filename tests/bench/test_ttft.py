"""The parts of `bench ttft` that need no real vLLM; its figures do (tests/real_vllm)."""

import asyncio
import sys
from pathlib import Path

import orjson
import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from bench.__main__ import app
from bench.ttft.chats import SIZES, TOOLS, Document, Size, as_ids, chat, sized
from bench.ttft.command import CELLS, Part
from bench.ttft.figure import draw
from bench.ttft.measure import PER_WORKER, Reading, Side, alternate, ask, orders, rounds, sides_of
from bench.ttft.report import cell, cell_name, summarise, table
from bench.ttft.setups import Pair, SetUp, TtftFailed
from bench.vllm_env.layout import Layout
from tests.bench.conftest import Fake

VOCABULARY = Path(__file__).parents[2] / "bench" / "data" / "tokenizer" / "tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(VOCABULARY))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_chat_has_the_tokens_and_turns_of_its_size(size: Size, tokenizer: Tokenizer) -> None:
    def tokens(document: Document) -> int:
        said = [message["content"] for message in document["messages"]]
        text = "".join([*said, orjson.dumps(document["tools"]).decode()])
        return len(tokenizer.encode(text).ids)

    async def count(document: Document) -> int:
        return tokens(document)

    document = asyncio.run(sized(size, "m", count))
    assert tokens(document) == pytest.approx(size.tokens, rel=0.05)
    assert sum(message["role"] == "user" for message in document["messages"]) == size.turns
    assert len(document["tools"]) == TOOLS
    assert document["stream"]


def test_chat_is_the_same_one_each_time() -> None:
    assert chat(SIZES[1], "m", 9_000) == chat(SIZES[1], "m", 9_000)


def test_ids_travel_without_the_text_but_with_everything_else() -> None:
    document = chat(SIZES[0], "m", 5_000)
    bare = as_ids(document, [1, 2, 3])
    assert bare["messages"] == []
    assert bare["kv_transfer_params"] == {"prompt_token_ids": [1, 2, 3]}
    assert {name for name in document if bare[name] == document[name]} == set(document) - {
        "messages"
    }


def test_each_side_begins_as_often_as_the_others() -> None:
    turned = orders(["a", "b", "c"], 6)
    assert [order[0] for order in turned] == ["a", "b", "c", "a", "b", "c"]
    assert all(sorted(order) == ["a", "b", "c"] for order in turned)


async def test_all_sides_get_the_same_load(fake: Fake) -> None:
    url = str(fake.server.url)
    sides = await sides_of(fake.http, Pair(url, url, "forebay-demo"), SIZES[0])
    assert sides["direct"].body == sides["forebay"].body
    assert len(orjson.loads(sides["ids"].body)["kv_transfer_params"]["prompt_token_ids"]) > 1_000
    found = await alternate(fake.http, sides, concurrency=16)
    for waves in found.values():
        assert [len(wave) for wave in waves] == [16 * PER_WORKER] * rounds(16)
        assert all(reading.ttft > 0 for wave in waves for reading in wave)


async def test_anything_but_a_whole_answer_ends_the_measurement(fake: Fake) -> None:
    body = orjson.dumps(chat(SIZES[0], "nobody's", 100))
    with pytest.raises(TtftFailed, match="404"):
        await ask(fake.http, Side(str(fake.server.url), body))
    with pytest.raises(TtftFailed, match="404"):
        await alternate(fake.http, {"direct": Side(str(fake.server.url), body)}, concurrency=2)


def test_figures_of_a_cell() -> None:
    told = [Reading(0.030, "ids", (("queue", 0.001),)), Reading(0.050, "text", (("queue", 0.003),))]
    waves = {
        "direct": [[Reading(0.100)], [Reading(0.050)]],
        "forebay": [[reading] for reading in told],
        "ids": [[Reading(0.030)], [Reading(0.030)]],
    }
    figures = cell(waves)
    assert figures["requests"] == 2
    assert figures["ttft_direct_ms"] == pytest.approx(75)
    assert figures["ttft_forebay_ms"] == pytest.approx(40)
    assert figures["ratio"] == pytest.approx(40 / 75)
    # The rounds' own ratios are 0.3 and 1.0.
    assert figures["ratio_quartiles"] == pytest.approx([0.475, 0.65, 0.825])
    assert figures["share_direct"] == pytest.approx(1 - 30 / 75)
    assert figures["share_forebay"] == pytest.approx(1 - 30 / 40)
    assert figures["channels"] == ["ids", "text"]
    assert figures["stages_ms"] == pytest.approx({"queue": 2.0})
    detail = {cell_name("default", "26k", 1): figures}
    summary = summarise(detail)
    assert summary["ratio_default_26k_c1"] == figures["ratio"]
    assert summary["ttft_direct_ms_default_26k_c1"] == figures["ttft_direct_ms"]
    assert table(detail).row_count == 1


def test_each_part_measures_what_it_says() -> None:
    assert CELLS[Part.RATIOS] == dict.fromkeys(SIZES, (1, 16))
    assert list(CELLS[Part.CURVE].values()) == [(1, 2, 4, 8, 16, 32, 64)]
    assert list(CELLS[Part.QUICK].values()) == [(1,)]


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    waves = {side: [[Reading(0.1)], [Reading(0.1)]] for side in ("direct", "forebay", "ids")}
    picture = tmp_path / "share.png"
    draw({cell_name("default", "8k", clients): cell(waves) for clients in (64, 1, 8)}, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_set_up_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = Layout(cache=tmp_path, environment=Path(sys.prefix), models=Path("/"))
    assert SetUp("plain").missing(here) == ""
    assert SetUp("fast", module="tokenizers").missing(here) == ""
    assert "no_such_module" in SetUp("slow", module="no_such_module").missing(here)
    monkeypatch.delenv("FOREBAY_VLLM_RS", raising=False)
    assert "FOREBAY_VLLM_RS" in SetUp("rust", rust=True).missing(here)
    monkeypatch.setenv("FOREBAY_VLLM_RS", sys.executable)
    assert SetUp("rust", rust=True).missing(here) == ""


@pytest.mark.parametrize("arguments", [[], ["--real", "--setup", "imaginary"]])
def test_command_refuses_what_it_cannot_measure(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["ttft", *arguments]).exit_code == 2
