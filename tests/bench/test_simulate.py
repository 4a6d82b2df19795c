"""The simulator: decisions that only a policy change may move, and what the policy is for."""

from dataclasses import replace
from math import inf
from random import Random

import orjson
import pytest
from typer.testing import CliRunner

from bench.__main__ import app
from bench.engine import SERIAL, EngineSpec
from bench.figures import in_milliseconds, percentile
from bench.policies import forebay, today
from bench.scenarios import burst, cached, headline, hol
from bench.simulation import Outcome, Simulation
from bench.workload import HEAD_OF_LINE, Job, poisson
from scheduler.model import (
    AffinitySpec,
    BurstSpec,
    ClassSpec,
    HoldSpec,
    Placement,
    Settings,
    TenantSpec,
)

_TWO = {"engine0": SERIAL, "engine1": SERIAL}


def _head_of_line() -> Simulation:
    simulation = Simulation(forebay(), _TWO)
    simulation.run(poisson(HEAD_OF_LINE, 15.7, 1500, seed=1))
    return simulation


def _one_engine() -> Simulation:
    simulation = Simulation(forebay(), {"engine": SERIAL})
    simulation.run(poisson(HEAD_OF_LINE, 7.9, 1500, seed=2))
    return simulation


def _wave() -> Simulation:
    simulation = Simulation(forebay(burst=BurstSpec()), _TWO)
    simulation.run(burst.workload(seed=1)[:400], scrape=True)
    return simulation


def _tenants() -> Simulation:
    """Three unequal tenants, one of whom floods; short queues, deadlines that are missed."""
    settings = Settings(
        classes=(
            ClassSpec("short", 1024, queue_limit=40, tenant_queue_limit=30),
            ClassSpec("long", queue_limit=20, queue_tokens=60_000),
        ),
        queue_wait=4.0,
        tenants=(TenantSpec("paying", 4.0),),
    )
    random = Random(3)
    names = ["paying", "flood", "flood", "flood", "other"]
    jobs = poisson(HEAD_OF_LINE, 40.0, 1500, seed=3)
    simulation = Simulation(settings, _TWO)
    simulation.run([replace(job, tenant=random.choice(names)) for job in jobs])
    return simulation


def _prefixes() -> Simulation:
    """Conversations that grow: each turn repeats what came before it."""
    settings = replace(forebay(), affinity=AffinitySpec(block_tokens=512))
    spec = replace(SERIAL, block_tokens=512)
    random, jobs = Random(4), []
    for talk in range(60):
        at, blocks = random.uniform(0, 60), random.randint(1, 8)
        for _turn in range(6):
            prefix = tuple(talk * 1000 + n for n in range(blocks))
            jobs.append(Job(at, blocks * 512 + 50, 5, prefix=prefix))
            at, blocks = at + random.expovariate(0.2), blocks + 1
    simulation = Simulation(settings, {f"engine{n}": spec for n in range(4)})
    simulation.run(sorted(jobs, key=lambda job: job.at))
    return simulation


GOLDEN = {
    _head_of_line: "3c5a5225ecb6e5f4",
    _one_engine: "16ee40ebb7b1f1b3",
    _wave: "f26ef611fb5404d4",
    _tenants: "3c2f980df593031b",
    _prefixes: "b93b48a8975ab3fe",
}


@pytest.mark.parametrize("workload", GOLDEN, ids=lambda w: w.__name__.strip("_"))
def test_golden_decisions(workload: object) -> None:
    """A digest of every dispatch and reject with its time and place.

    A refactoring must not move it. A change of policy may, and its commit says why.
    """
    assert workload().digest == GOLDEN[workload]  # type: ignore[operator]


def _shorts(outcomes: list[Outcome]) -> dict[str, float]:
    return in_milliseconds([o for o in outcomes if o.job.prompt == 100])


def test_holding_long_prompts_is_what_keeps_short_ones_fast() -> None:
    jobs = poisson(HEAD_OF_LINE, 15.7, 3000, seed=5)
    held = _shorts(Simulation(forebay(), _TWO).run(jobs))
    loose = replace(forebay(), hold=HoldSpec(tolerance=inf, ahead=inf))
    unheld = _shorts(Simulation(loose, _TWO).run(jobs))
    theirs = _shorts(Simulation(today(Placement.LEAST_REQUESTS), _TWO).run(jobs))
    assert held["p99"] < 500 < unheld["p99"]
    assert held["p99"] * 3 < theirs["p99"]


def test_two_thirds_idle_engines_never_both_read_long_prompts() -> None:
    outcomes = hol.play(hol.SETTINGS["35"], hol.OURS, 3000, seed=1)
    assert _shorts(outcomes)["p95"] < 20


def test_a_cached_prefix_draws_the_next_turn_to_its_engine() -> None:
    simulation = _prefixes()
    cached = sum(engine.cached_tokens for engine in simulation.engines.values())
    computed = sum(engine.prompt_tokens for engine in simulation.engines.values())
    assert cached / computed > 0.7


def test_clients_that_repeat_long_prompts_do_not_queue_behind_each_other() -> None:
    outcomes = cached.play(cached.policies()["forebay"], cached.clients(32, (8_000,)))
    waits = [(o.dispatched or inf) - o.job.at for o in outcomes]
    assert len(waits) > 1000
    assert percentile(waits, 0.9) == 0.0


def _repeated(settings: Settings, spec: EngineSpec) -> float:
    """Mean TTFT of 16 clients that send the same long prompt again and again to one engine."""
    first = Job(0.0, 7944, 8, prefix=tuple(range(31)))
    jobs = [first, *(replace(first, at=5.0, tenant=str(number)) for number in range(16))]

    def again(outcome: Outcome) -> Job | None:
        at = outcome.ended or inf
        return replace(outcome.job, at=at) if 5.0 < at < 25.0 else None

    outcomes = Simulation(settings, {"engine": spec}).run(jobs, then=again)
    return in_milliseconds([o for o in outcomes if o.job.at >= 10.0])["mean"]


def test_cached_prompts_wait_for_each_other_only_where_an_engine_reads_them_one_by_one() -> None:
    ours, theirs = cached.policies()["forebay"], today(Placement.LEAST_REQUESTS)
    reading = EngineSpec(step_base=0.001, attention=3.9e-7, block_tokens=256)
    assert _repeated(ours, reading) < 0.9 * _repeated(theirs, reading)
    batching = EngineSpec(step_base=0.02, attention=1e-12, block_tokens=256)
    assert _repeated(ours, batching) <= 1.01 * _repeated(theirs, batching)


def test_clients_that_repeat_their_prompts_do_not_crowd_on_one_engine() -> None:
    first, settings = cached.clients(16, cached.MIXED), cached.policies()
    ours = in_milliseconds(cached.play(settings["forebay"], first))
    theirs = in_milliseconds(cached.play(settings["least_requests"], first))
    assert ours["mean"] < theirs["mean"] * 0.9


def test_every_job_has_one_outcome_and_the_books_agree_throughout() -> None:
    settings = replace(forebay(), queue_wait=1.0)
    simulation = Simulation(settings, _TWO, check=True)
    outcomes = simulation.run(poisson(HEAD_OF_LINE, 25.0, 400, seed=6))
    assert all((o.ended is None) == bool(o.rejected) for o in outcomes)
    assert any(o.rejected for o in outcomes)


def test_what_no_engine_can_hold_fails_and_the_rest_goes_on() -> None:
    jobs = [Job(0.0, SERIAL.kv_tokens + 1), Job(0.1, 100)]
    outcomes = Simulation(forebay(), _TWO).run(jobs)
    assert [o.rejected for o in outcomes] == ["cannot_serve", ""]
    assert outcomes[1].ttft == pytest.approx(0.01)


def test_the_command_writes_a_summary_with_its_detail(tmp_path: object) -> None:
    path = tmp_path / "result.json"  # type: ignore[operator]
    arguments = ["simulate", "--scenario", "hol", "--requests", "200", "--json", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = orjson.loads(path.read_bytes())
    assert document.keys() == {"summary", "detail", "environment"}
    assert "short_p99_ratio_35" in document["summary"]
    assert document["detail"]["70"]["forebay"]["short_p99"] > 0


def test_a_trace_scenario_without_a_trace_says_so() -> None:
    result = CliRunner().invoke(app, ["simulate", "--scenario", "trace"])
    assert result.exit_code == 2
    assert "--trace" in result.output


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (0.01, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([], 0.5) == 0.0


def test_a_percentile_between_two_values_is_the_upper_one() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.9) == 3.0
    assert percentile([float(n) for n in range(1, 151)], 0.99) == 149.0


def test_a_simulation_may_end_before_its_jobs_do() -> None:
    jobs = [Job(0.0, 100), Job(1.0, 100), Job(2.0, 100)]
    outcomes = Simulation(forebay(), _TWO).run(jobs, until=1.005)
    assert [o.dispatched for o in outcomes] == [0.0, 1.0, None]
    assert [o.ended is None for o in outcomes] == [False, True, True]


def test_the_headline_finds_the_fewest_engines_that_hold_its_target() -> None:
    plan = headline.Plan(tuple(headline.counted()), rate=5.0, seconds=2.0)
    found = headline.least(headline.OURS, plan)
    assert found["mean"] <= 200.0
    assert found["p99"] <= 600.0
    fewer = headline.numbers(headline.OURS, plan, int(found["engines"]) - 1)
    assert not headline.holds(fewer)
    assert (found["too_few"], found["too_few_p99"]) == (found["engines"] - 1, fewer["p99"])
