"""Costs are found again in the log of an engine whose costs are known."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from bench.recalibrate.fit import Learned, learn
from bench.recalibrate.log import NothingLogged, busiest
from tests.bench.recalibrate.logs import OVERHEAD, SPEC, START, played, traffic, write


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Through a file, as a week's log."""
    path = tmp_path_factory.mktemp("log") / "requests.jsonl"
    write(path, played(traffic(1200, 7.0), [SPEC, SPEC]))
    return learn(busiest([path], START, 20_000), SPEC)


def test_each_cost_is_found_under_mixed_load(learned: Learned) -> None:
    found = learned.fitted.spec
    assert found.prefill_per_token == pytest.approx(SPEC.prefill_per_token, rel=0.08)
    assert found.step_base == pytest.approx(SPEC.step_base, rel=0.05)
    assert found.decode_per_seq == pytest.approx(SPEC.decode_per_seq, rel=0.25)
    assert learned.fitted.overhead == pytest.approx(OVERHEAD, rel=0.4)


def test_requests_that_were_not_fitted_are_predicted(learned: Learned) -> None:
    assert learned.error < 0.05
    assert learned.backends == {
        "b-0": pytest.approx(1, abs=0.03),
        "b-1": pytest.approx(1, abs=0.03),
    }


def test_what_attention_costs_shows_in_long_prompts() -> None:
    spec = replace(SPEC, attention=6e-9)
    found = learn([played(traffic(600, 2.0, longest=20_000), [spec])], spec).fitted.spec
    assert found.attention == pytest.approx(spec.attention, rel=0.3)


def test_a_slower_backend_is_named() -> None:
    slow = replace(SPEC, prefill_per_token=2 * SPEC.prefill_per_token, step_base=0.024)
    found = learn([played(traffic(800, 5.0), [SPEC, SPEC, slow])], SPEC).backends
    assert found["b-2"] > 1.4 * max(found["b-0"], found["b-1"])


def test_cached_prompts_do_not_make_the_engine_look_faster() -> None:
    """One prompt in ten comes from the cache, at once; they are outliers."""
    random, requests = Random(5), played(traffic(1000, 4.0), [SPEC, SPEC])
    spoilt = [
        replace(r, first=r.sent + 0.02) if random.random() < 0.1 and r.prompt > 500 else r
        for r in requests
    ]
    found = learn([spoilt], SPEC).fitted.spec
    assert found.prefill_per_token == pytest.approx(SPEC.prefill_per_token, rel=0.1)


def test_answers_that_were_not_streamed_are_load_but_tell_no_times() -> None:
    random = Random(3)
    requests = [
        replace(r, first=None) if random.random() < 0.3 else r
        for r in played(traffic(1200, 4.0), [SPEC, SPEC])
    ]
    found = learn([requests], SPEC).fitted.spec
    assert found.prefill_per_token == pytest.approx(SPEC.prefill_per_token, rel=0.15)


def test_too_little_is_said_with_its_numbers(tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", played(traffic(20, 2.0), [SPEC]))
    with pytest.raises(NothingLogged, match=r"\d+ streams tell of prefill and 20 of decoding"):
        learn(busiest([few], START, 100), SPEC)
