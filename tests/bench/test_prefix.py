"""Conversations before caches: what they share, and what a policy makes of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.__main__ import app
from bench.prefix.command import report
from bench.prefix.conversations import BLOCK, Talk, jobs, shareable
from bench.prefix.run import Found, Plan, measure
from bench.workload import Job
from tests.bench.conftest import Fake

TALKS = st.builds(
    Talk,
    rate=st.floats(1, 50),
    seconds=st.floats(0.5, 10),
    open=st.integers(1, 9),
    turns=st.integers(1, 6),
    system=st.integers(0, 3),
    said=st.integers(1, 3),
)


@given(TALKS, st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_each_turn_is_what_was_said_before_and_something_new(talk: Talk, seed: int):
    last: dict[str, tuple[int, ...]] = {}
    for job in jobs(talk, seed):
        assert job.prompt == len(job.prefix) * BLOCK
        assert job.prefix[: talk.system] == tuple(range(talk.system))
        before = last.get(job.session, ())
        if len(job.prefix) > talk.system + talk.said:
            assert job.prefix[: -talk.said] == before
        assert len(job.prefix) <= talk.system + talk.said * talk.turns
        assert job.at < talk.seconds
        last[job.session] = job.prefix


def test_runs_with_other_numbers_share_nothing():
    one = {block for job in jobs(Talk(20, 5), 1) for block in job.prefix}
    other = {block for job in jobs(Talk(20, 5, first=10_000_000), 1) for block in job.prefix}
    assert one
    assert not one & other


def test_what_an_endless_cache_would_spare():
    planned = [Job(0.0, 1, prefix=(1, 2)), Job(1.0, 1, prefix=(1, 2, 3)), Job(2.0, 1, prefix=(9,))]
    assert shareable(planned) == pytest.approx(2 / 6)
    assert shareable([]) == 0.0


def test_the_report_has_medians_and_what_was_not_run():
    def one(hits: float, p50: float) -> dict:
        ttft = {"p50": p50, "p99": 2 * p50}
        return {"hit_share": hits, "all": {"ttft_ms": ttft, "errors": {"http_503": 1}}}

    rounds = {"vllm-router": [one(0.5, 100), one(0.7, 300), one(0.6, 200)]}
    plan = Plan(("vllm-router",), Talk(5, 5), engines=2, kv_tokens=50_000, rounds=3)
    document = report(plan, Found(rounds), not_run=["nginx"])
    summary = document["summary"]
    assert summary["vllm_router_hit_share"] == 0.6
    assert summary["vllm_router_ttft_ms_p99"] == 400
    assert summary["vllm_router_errors"] == 3
    assert 0 < summary["ideal_hit_share"] < 1
    assert document["detail"]["not_run"] == ["nginx"]


@pytest.mark.slow
def test_engines_in_turn_know_less_of_a_conversation_than_one_engine_would(tmp_path: Path):
    file = tmp_path / "r.json"
    flags = ["--policies", "direct", "--rounds", "1", "--seconds", "4", "--rate", "12"]
    ended = CliRunner().invoke(app, ["prefix", *flags, "--json", str(file)])
    assert ended.exit_code == 0, ended.output
    summary = json.loads(file.read_text())["summary"]
    assert summary["direct_errors"] == 0
    assert 0.05 < summary["direct_hit_share"] < summary["ideal_hit_share"]


@pytest.mark.slow
async def test_a_server_that_runs_already_is_asked_by_each_policy_for_texts_of_its_own(
    fake: Fake, tmp_path: Path
):
    plan = Plan(("direct", "forebay"), Talk(12, 2), 1, 0, rounds=1, urls=(fake.server.url,))
    found, told = Found(), []
    await measure(plan, found, told.append)
    assert told == ["round 1 of 1: direct", "round 1 of 1: forebay"]
    first, second = (found.rounds[policy][0] for policy in plan.policies)
    assert first["all"]["errors"] == second["all"]["errors"] == {}
    # What one policy had asked would be known to the next, whole.
    assert 0.05 < second["hit_share"] < first["hit_share"] + 0.2


def test_a_server_that_is_not_there_is_said(unused_port: int):
    ended = CliRunner().invoke(app, ["prefix", "--backend", f"http://127.0.0.1:{unused_port}"])
    assert ended.exit_code == 1
    assert f"127.0.0.1:{unused_port}" in ended.output
