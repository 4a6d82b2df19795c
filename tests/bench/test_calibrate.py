"""Fitting the engine model: costs that are known come back, and errors are what they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.__main__ import app
from bench.calibrate.fit import Decode, Fitted, Prefill, fit, flags
from bench.calibrate.heldout import Predicted, errors, predict
from bench.calibrate.measure import Server, decodes, held_out, prefills
from bench.engine import SERIAL, EngineSpec
from bench.fake_vllm import Mode
from bench.fake_vllm.__main__ import options, parser
from bench.load.discover import LoadFailed
from tests.bench.conftest import Fake, make_fake
from tests.bench.test_load_parts import sample

KNOWN = EngineSpec(step_base=0.01, prefill_per_token=1e-4, decode_per_seq=2e-4, attention=1e-8)
SIZES = (50, 500, 2000, 3000, 8000)


def lone(spec: EngineSpec, tokens: int, overhead: float = 0.0) -> Prefill:
    steps = -(-tokens // spec.max_num_batched_tokens)
    compute = tokens * spec.prefill_per_token + tokens**2 / 2 * spec.attention
    return Prefill(tokens, overhead + steps * spec.step_base + compute)


def together(spec: EngineSpec, running: int, context: float = 80.0) -> Decode:
    each = spec.decode_per_seq + context * spec.attention
    return Decode(running, context, spec.step_base + running * each)


def test_known_costs_come_back():
    fitted = fit(
        [lone(KNOWN, size, 0.005) for size in SIZES], [together(KNOWN, n) for n in (1, 4, 16)],
        SERIAL,
    )  # fmt: skip
    assert fitted.overhead == pytest.approx(0.005)
    assert fitted.error < 1e-9
    for cost in ("step_base", "prefill_per_token", "decode_per_seq", "attention"):
        assert getattr(fitted.spec, cost) == pytest.approx(getattr(KNOWN, cost))


@given(st.lists(st.floats(0.001, 10.0), min_size=5, max_size=5), st.floats(0.001, 1.0))
def test_no_cost_is_negative_whatever_was_measured(ttfts: list[float], gap: float):
    measured = [Prefill(size, ttft) for size, ttft in zip(SIZES, ttfts, strict=True)]
    fitted = fit(measured, [Decode(1, 80.0, gap), Decode(8, 80.0, gap * 2)], SERIAL)
    spec = fitted.spec
    costs = (spec.step_base, spec.prefill_per_token, spec.decode_per_seq, spec.attention)
    assert min(*costs, fitted.overhead) >= 0
    assert fitted.error >= 0


def test_too_little_is_said():
    with pytest.raises(ValueError, match="too few"):
        fit([lone(KNOWN, 50)] * 5, [together(KNOWN, 1)], SERIAL)
    with pytest.raises(ValueError, match="too few"):
        fit([lone(KNOWN, size) for size in SIZES], [], SERIAL)


def test_the_flags_make_a_fake_of_the_fitted_engine():
    told = options(parser().parse_args(flags(Fitted(KNOWN, 0.0, 0.0)).split())).engine
    assert told.step_base == pytest.approx(KNOWN.step_base)
    assert told.attention == pytest.approx(KNOWN.attention)


def test_the_model_makes_requests_wait_for_each_other():
    fitted = Fitted(SERIAL, overhead=0.5, error=0.0)
    samples = [
        sample(0, 1.0, intended=0.0, prompt_tokens=2048, output_tokens=1),
        sample(1, 1.0, intended=0.1, prompt_tokens=1000, output_tokens=1),
        sample(2, 1.0, intended=9.0, prompt_tokens=1000, output_tokens=1),
    ]
    ttfts = [predicted.ttft for predicted in predict(fitted, samples)]
    assert ttfts == pytest.approx([0.7048, 0.2048 - 0.1 + 0.1 + 0.5, 0.6])


def test_errors_are_relative_to_what_was_measured():
    samples = [sample(n, 0.2, ended=n + 0.4) for n in range(10)]
    found = errors(samples, [Predicted(0.3, 0.4)] * 10)
    assert found["ttft_error_median"] == pytest.approx(0.5)
    assert found["ttft_p90_error"] == pytest.approx(0.5)
    assert found["e2e_error_median"] == pytest.approx(0.0)
    assert (found["ttft_p50_ms"], found["ttft_p50_model_ms"]) == pytest.approx((200, 300))


@pytest.mark.slow
async def test_an_engine_behind_a_socket_is_recognised():
    spec = replace(SERIAL, step_base=0.02, prefill_per_token=4e-4, decode_per_seq=0.002)
    async with make_fake(engine=spec) as fake:
        server = Server(fake.server.url, prompts=(100, 800, 1600), running=(1, 3), repeats=1)
        fitted = fit(await prefills(server), await decodes(server), SERIAL)
        samples = await held_out(server, fitted, 6)
    assert fitted.spec.prefill_per_token == pytest.approx(4e-4, rel=0.25)
    assert fitted.spec.step_base == pytest.approx(0.02, rel=0.35)
    assert errors(samples, predict(fitted, samples))["ttft_error_median"] < 0.3


async def test_no_model_is_fitted_to_errors(fake: Fake):
    fake.server.app.fail(Mode.BUSY)
    with pytest.raises(LoadFailed):
        await prefills(Server(fake.server.url))


def test_the_command_asks_for_one_server():
    for flags_ in ([], ["--real", "--backend", "http://127.0.0.1:9"]):
        ended = CliRunner().invoke(app, ["calibrate", *flags_])
        assert ended.exit_code == 2
        assert "either" in ended.output


def test_the_command_says_what_is_wrong_with_a_server(tmp_path: Path, unused_port: int):
    file = tmp_path / "r.json"
    url = f"http://127.0.0.1:{unused_port}"
    ended = CliRunner().invoke(app, ["calibrate", "--backend", url, "--json", str(file)])
    assert "bench calibrate" in str(ended.exception)
    assert not file.exists()
