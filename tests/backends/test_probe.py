"""What a probe proves about honest, deaf and lying servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from backends.channels import prove
from backends.errors import NotServing
from backends.probe import Probe
from backends.types import BackendSpec, Capabilities, Channel, ServedModel
from tests.backends.engine import Engine
from tests.backends.scripted import Peer, serving, unused_port


@asynccontextmanager
async def probing(engine: Engine) -> AsyncIterator[Probe]:
    async with engine.serving(), Probe(engine.spec(api_key="k"), timeout=5) as probe:
        yield probe


async def proved(engine: Engine) -> Capabilities:
    async with probing(engine) as probe:
        return await prove(probe)


async def test_an_honest_server_takes_ids_in_both_apis() -> None:
    found = await proved(Engine())
    assert found == Capabilities(
        version="0.32.0",
        models=(ServedModel("m", "/w/m", 4096),),
        chat=Channel.IDS,
        completions=Channel.IDS,
        generate_path="/v1/chat/completions",
    )


async def test_a_server_that_does_not_tell_which_ids_it_used_is_believed_by_its_counts() -> None:
    found = await proved(Engine(chat_ids="untold", completion_ids="untold"))
    assert (found.chat, found.completions) == (Channel.IDS, Channel.IDS)


@pytest.mark.parametrize(
    ("behaviour", "note"),
    [
        ("ignored", "ids were counted as"),
        ("refused", "refused with 400"),
        ("lied", "used other ids"),
    ],
)
@pytest.mark.parametrize("api", ["chat", "completions"])
async def test_anything_but_proof_means_text(api: str, behaviour: str, note: str) -> None:
    engine = Engine(chat_ids=behaviour) if api == "chat" else Engine(completion_ids=behaviour)
    found = await proved(engine)
    channels = {"chat": found.chat, "completions": found.completions}
    assert channels.pop(api) is Channel.TEXT
    assert list(channels.values()) == [Channel.IDS]
    (said,) = found.notes
    assert said.startswith(f"{api} of m by text: ")
    assert note in said


@pytest.mark.parametrize("status", [403, 404, 405, 500, 501])
async def test_an_endpoint_that_is_not_offered_means_text(status: int) -> None:
    found = await proved(Engine(refuse={"/v1/completions": status}))
    assert (found.chat, found.completions) == (Channel.IDS, Channel.TEXT)


async def test_a_server_that_counts_by_luck_is_caught_by_the_second_prompt() -> None:
    """It ignores ids, and its empty template happens to be as long as the first prompt."""
    lengths: list[int] = []

    class Lucky(Engine):
        async def _chat(self, request):  # type: ignore[no-untyped-def]
            document = await request.json()
            given = document.get("kv_transfer_params", {}).get("prompt_token_ids")
            if given:
                lengths.append(len(given))
            return await self._generate(
                [0] * lengths[0] if lengths else [0], None, "untold", returned_in_choice=False
            )

    found = await proved(Lucky())
    assert len(lengths) == 2
    assert found.chat is Channel.TEXT


async def test_two_prompts_of_one_length_prove_nothing() -> None:
    class Padding(Engine):
        async def _tokenize(self, _: web.Request) -> web.Response:
            return web.json_response({"tokens": [1, 2, 3]})

    found = await proved(Padding())
    assert (found.chat, found.completions) == (Channel.TEXT, Channel.TEXT)
    assert "same length" in found.notes[0]


async def test_an_answer_without_end_is_cut() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 1_048_576] * 20)

    async with serving(script) as served, Probe(served.spec()) as probe:
        with pytest.raises(NotServing, match="over 16777216 bytes"):
            await probe.page("/metrics")


async def test_ids_are_sent_beside_no_text_at_all() -> None:
    engine = Engine()
    await proved(engine)
    sent = [d for d in engine.asked("/v1/chat/completions") if "kv_transfer_params" in d]
    assert [d["messages"] for d in sent] == [[], []]
    prompts = [d["kv_transfer_params"]["prompt_token_ids"] for d in sent]
    assert len(prompts[0]) != len(prompts[1])


async def test_without_tokenize_no_ids_are_claimed_or_sent() -> None:
    engine = Engine(offers_tokenize=False)
    found = await proved(engine)
    assert (found.chat, found.completions) == (Channel.TEXT, Channel.TEXT)
    assert "/tokenize" in found.notes[0]
    assert not any("kv_transfer_params" in d for d in engine.asked("/v1/chat/completions"))


async def test_every_base_model_is_proved_and_adapters_share_the_proof() -> None:
    engine = Engine(models=("m", "n"), adapters=("lora",))
    found = await proved(engine)
    assert [model.name for model in found.models] == ["m", "n", "lora"]
    assert found.models[2].parent == "m"
    assert found.chat is Channel.IDS
    assert {d["model"] for d in engine.asked("/tokenize")} == {"m", "n"}


async def test_a_model_without_a_chat_template_is_probed_by_completions() -> None:
    found = await proved(Engine(refuse={"/v1/chat/completions": 400}))
    assert found.generate_path == "/v1/completions"
    assert (found.chat, found.completions) == (Channel.TEXT, Channel.IDS)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (Engine(refuse={"/v1/models": 500}), "/v1/models answered 500"),
        (Engine(models=()), "lists no model"),
        (Engine(refuse={"/v1/chat/completions": 500, "/v1/completions": 404}), "no token from m"),
        (Engine(refuse={"/v1/chat/completions": 503}), "answered 503"),
        (Engine(chat_ids="busy"), "too busy to be judged"),
    ],
)
async def test_a_server_that_cannot_be_judged_is_not_serving(engine: Engine, why: str) -> None:
    with pytest.raises(NotServing, match=why):
        await proved(engine)


async def test_a_dead_port_is_not_serving() -> None:
    async with Probe(BackendSpec("b1", f"http://127.0.0.1:{unused_port()}")) as probe:
        with pytest.raises(NotServing):
            await prove(probe)


async def test_a_server_that_never_answers_is_not_serving() -> None:
    async def silent(peer: Peer) -> None:
        await peer.until_gone()

    async with serving(silent) as served, Probe(served.spec(), timeout=0.05) as probe:
        with pytest.raises(NotServing, match="no answer in time"):
            await prove(probe)


async def test_health_is_only_a_claim() -> None:
    engine = Engine(hanging=True)
    async with probing(engine) as probe:
        assert await probe.healthy()
        with pytest.raises(NotServing):
            await probe.one_token("/v1/chat/completions", "m", within=0.05)


async def test_version_is_unknown_where_it_is_not_offered() -> None:
    found = await proved(Engine(refuse={"/version": 404}))
    assert (found.version, found.chat) == ("unknown", Channel.IDS)


async def test_tokenize_of_prompts_and_messages() -> None:
    async with probing(Engine()) as probe:
        assert await probe.tokenize("m", prompt="a b") == [97, 98]
        assert (
            len(await probe.tokenize("m", messages=[{"role": "user", "content": "a"}]) or []) == 3
        )


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b'{"tokens": "x"}', b'{"tokens": [1, "2"]}', b'{"tokens": [true]}']
)
async def test_a_strange_tokenize_answer_is_none(body: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with serving(script) as served, Probe(served.spec()) as probe:
        assert await probe.tokenize("m", prompt="a") is None


async def test_questions_go_out_in_parallel_with_the_key() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with serving(script) as served, Probe(served.spec(api_key="secret")) as probe:
        await asyncio.gather(probe.version(), probe.healthy())
        assert len(served.peers) == 2
        assert b"authorization: bearer secret" in served.peers[0].requests[0].lower()
