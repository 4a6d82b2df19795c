"""The plan: as brute force says, in fewer runs, with its reasons; and honest where it cannot be."""

from concurrent.futures import Executor, Future
from dataclasses import replace

import pytest

from bench.capacity import plan, play
from bench.capacity.demand import Rhythm, alone, servable
from bench.capacity.objective import parse
from bench.capacity.reasons import Rule, at_target, rule, words
from bench.workload import Job
from tests.bench.capacity.cases import SPEC, small

OBJECTIVE = parse("mean=200,p95=900", 1024)


class Here(Executor):
    """Does at once, in this process, what it is given."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize(("rate", "seed"), [(20.0, 1), (60.0, 3)])
def test_the_search_agrees_with_brute_force_within_one_engine(rate: float, seed: int) -> None:
    demand = small(rate, seed=seed)
    found = plan.fewest(demand, OBJECTIVE)
    points = plan.curve(demand, OBJECTIVE, list(range(1, found.engines + 5)), Here())
    assert abs(found.engines - plan.brute_force(points)) <= 1
    whole = {int(point["engines"]): bool(point["holds"]) for point in points}
    given_up_early = {number: held for number, held in found.tried.items() if number in whole}
    assert given_up_early == {number: whole[number] for number in given_up_early}
    assert set(whole.values()) == {True, False}


def test_a_percentile_of_few_requests_is_not_taken() -> None:
    jobs = small(40.0).jobs
    assert OBJECTIVE.too_few(jobs) == []
    assert parse("p99=900", 1024).too_few(jobs) == ["p99=900 needs 1000 requests, not 500"]


def test_goodput_does_not_fall_with_more_engines() -> None:
    points = plan.curve(small(40.0), OBJECTIVE, [1, 3, 9], Here())
    shares = [point["good_share"] for point in points]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] >= 0.99


def test_each_step_of_the_ladder_takes_away_what_it_says() -> None:
    random, asked = small(40.0, rhythm=Rhythm.POISSON), small(40.0)
    steps = dict(plan.Ladder(random, asked).steps())
    assert list(steps) == ["prefill", "decode", "kv", "rhythm"]
    assert {job.output for job in steps["prefill"].jobs} == {1}
    assert steps["decode"].jobs == steps["kv"].jobs == random.jobs
    assert steps["decode"].spec.kv_tokens > steps["kv"].spec.kv_tokens == SPEC.kv_tokens
    assert steps["rhythm"].jobs == asked.jobs


def test_crowds_cost_engines_and_the_reason_says_so() -> None:
    ladder = plan.Ladder(small(40.0, rhythm=Rhythm.POISSON), small(40.0))
    found = {name: one.engines for name, one in plan.climb(ladder, OBJECTIVE, Here()).items()}
    assert found["rhythm"] > found["kv"]
    assert ladder.asked is not None
    said = words(found, rule(ladder.asked), ladder.asked)
    assert f"burstiness: +{found['rhythm'] - found['kv']}" in said[3]
    assert "too few" in said[-1]


def test_the_rule_is_rate_times_mean_ttft_and_a_fifth() -> None:
    demand = replace(small(10.0), jobs=tuple(Job(n * 0.1, 1000, 1) for n in range(100)))
    ttft = SPEC.step_base + 1000 * SPEC.prefill_per_token
    said = rule(demand)
    assert said.ttft == pytest.approx(ttft)
    assert said.busy == pytest.approx(10.0 * ttft)
    assert said.engines == 2  # 10 x 0.1034 x 1.2 = 1.24
    assert at_target(demand, parse("mean=200", 1024)) == 3  # 10 x 0.2 x 1.2 = 2.4
    assert at_target(demand, parse("p99=200", 1024)) is None


def test_a_lone_request_takes_its_steps_and_its_tokens() -> None:
    assert alone(Job(0.0, 5000), SPEC) == pytest.approx(
        3 * SPEC.step_base + 5000 * SPEC.prefill_per_token
    )


def test_an_objective_that_no_engine_reaches_is_refused_at_once() -> None:
    demand = small(40.0)
    with pytest.raises(plan.Unattainable, match=r"p99=100: .* for themselves reach \d+ ms"):
        plan.check(demand, parse("mean=200,p99=100", 1024))
    plan.check(demand, OBJECTIVE)


def test_what_no_cache_could_hold_is_left_out() -> None:
    jobs = [Job(0.0, SPEC.kv_tokens, 1), Job(0.0, 100, 1)]
    assert servable(jobs, SPEC) == jobs[1:]


def test_requests_while_the_engines_fill_are_not_judged() -> None:
    demand = small(40.0)
    judged = play.outcomes(demand, OBJECTIVE, 4)
    assert 0 < len(judged) == len(demand.judged) < len(demand.jobs)
    assert min(outcome.job.at for outcome in judged) >= demand.warm_up


@pytest.mark.parametrize(
    ("answer", "balance"),
    [
        (2, "the rule and the simulation agree: 2"),
        (5, "the rule's 2 are 3 too few for this objective"),
        (1, "the rule's 2 are 1 more than this objective needs"),
    ],
)
def test_the_balance_is_drawn_in_words(answer: int, balance: str) -> None:
    steps = {"prefill": 1, "decode": answer, "kv": answer}
    said = words(steps, Rule(0.1, 1.5), small(40.0))
    assert said[-1] == balance
    assert f"decode: {answer - 1:+d}: " in said[1]
    assert len(said) == 4, "no rhythm was asked for"


def test_shared_prefixes_are_judged_only_by_playing_them() -> None:
    """What a cache will hold is not known before: no objective is refused at once."""
    demand = small(40.0)
    shared = replace(demand, jobs=tuple(replace(job, prefix=(1,)) for job in demand.jobs))
    plan.check(shared, parse("mean=200,p99=1", 1024))
