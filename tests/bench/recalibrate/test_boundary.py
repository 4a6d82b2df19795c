"""The bound that is proposed: better by much in the whole, and worse nowhere."""

from dataclasses import replace
from math import inf
from pathlib import Path

import orjson
import pytest

from bench.recalibrate.boundary import ENOUGH, candidates, choose, jobs_of, judged, stretches
from bench.recalibrate.fleet import LIMIT, NoSituation, Situation, of_log, read
from bench.traces import LOGGED_ANSWER
from bench.workload import Job
from gateway.config import Config
from gateway.recalibration.proposal import settings_of
from scheduler.model import ClassSpec
from tests.bench.recalibrate.logs import SPEC, played, traffic


def situation(bound: int = 1024, *more: ClassSpec) -> Situation:
    classes = (ClassSpec("short", bound, ttft_target=0.6), *more, ClassSpec("long"))
    return Situation(classes, {"short-0": (("short",), 64), "long-0": (("long",), 64)})


def test_candidates_are_around_the_present_bound_and_below_the_next() -> None:
    assert candidates(situation()) == [512, 720, 1024, 1440, 2048]
    assert candidates(situation(1024, ClassSpec("middle", 1440))) == [512, 720, 1024]
    assert candidates(situation(1000)) == [496, 704, 1000, 1408, 2000]


@pytest.mark.parametrize(
    ("stretches_of_700", "best"),
    [
        ([[0.8], [0.8]], 700),
        ([[0.95], [0.95]], 1000),  # 5% better: not worth it
        ([[0.2], [1.2]], 1000),  # much worse in one part
        ([[inf], [0.1]], 1000),
    ],
)
def test_a_bound_must_be_clearly_better_and_worse_in_no_part(
    stretches_of_700: list[list[float]], best: int
) -> None:
    choice = choose(1000, {700: stretches_of_700, 1000: [[1.0], [1.0]]})
    assert (choice.now.bound, choice.best.bound) == (1000, best)


def test_a_part_of_a_few_requests_has_no_say_beside_a_fuller_one() -> None:
    seen = played(traffic(2 * ENOUGH, 4.0), [SPEC])
    half, few = seen[:ENOUGH], seen[ENOUGH : 2 * ENOUGH - 1]
    assert judged([few, half]) == [half]
    assert judged([few]) == [few]
    assert judged([few, seen, half]) == [seen, half]


def test_of_two_that_are_worth_it_the_better_one_is_chosen() -> None:
    found = {500: [[0.5]], 700: [[0.7]], 1000: [[1.0]]}
    assert choose(1000, found).best.bound == 500
    assert choose(500, found).best.bound == 500


def test_a_bound_is_played_on_the_pools_that_it_divides() -> None:
    """Prompts of 1,500 and 200 tokens: with the long pool crowded by what the short one could
    take, a bound above 1,500 is better."""
    jobs = [Job(n * 0.1, 8000 if n % 16 == 15 else 1500 if n % 2 else 200, 1) for n in range(400)]
    worst = {bound: max(stretches(situation(), SPEC, bound, jobs)) for bound in (1024, 2048)}
    assert worst[2048] < 0.7 * worst[1024]


def test_the_log_tells_which_backends_there_were() -> None:
    requests = played(traffic(60, 5.0), [SPEC, SPEC])
    found = of_log(
        Situation(situation().classes, {"b-0": (("short",), 7), "gone": ((), 9)}), requests
    )
    assert found.backends["b-0"] == (("short",), 7)
    assert found.backends["b-1"] == (("long", "short"), LIMIT)
    assert set(found.backends) == {"b-0", "b-1"}


def test_answers_of_unknown_length_are_usual_ones() -> None:
    (one,) = played([Job(0.0, 100, 5)], [SPEC])
    assert jobs_of([one]) == [Job(0.0, 100, 5)]
    assert jobs_of([replace(one, output=0)]) == [Job(0.0, 100, LOGGED_ANSWER)]


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"classes": {"a": {}}, "backends": {}}', b"x"])
def test_settings_that_are_none_are_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text)
    with pytest.raises(NoSituation):
        read(path)


def test_settings_are_read_as_the_gateway_tells_them(tmp_path: Path) -> None:

    config = Config.model_validate(
        {"backends": {"short-0": {"url": "http://b", "classes": ["short"], "limit": 12}}}
    )
    path = tmp_path / "settings.json"
    path.write_bytes(orjson.dumps(settings_of(config)))
    found = read(path)
    assert found.backends == {"short-0": (("short",), 12)}
    assert (found.smallest.name, found.smallest.max_prompt_tokens) == ("short", 1024)
    assert found.next_bound == inf
