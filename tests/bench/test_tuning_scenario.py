"""Settings that follow the traffic against settings that stay, on a short piece of the scenario."""

from dataclasses import replace

from bench.figures import goodput, percentile, ttfts
from bench.scenarios import tuning
from bench.scenarios.tuning import BETWEEN, BURSTS, IN_TIME, POLICIES, play, play_documents

PHASES = ((100.0, "chats"), (350.0, "passages"))


def _in_time(name: str, *, after: float) -> float:
    played = play(replace(POLICIES[name], phases=PHASES), seed=1)
    return goodput([o for o in played.outcomes if o.job.at > after], IN_TIME, BETWEEN)


def test_a_boundary_that_follows_the_lengths_keeps_prompts_in_time() -> None:
    # Until 150 s the new prompts are few among those that are remembered.
    assert _in_time("split_fixed", after=150.0) < 0.7
    assert _in_time("split_adapting", after=150.0) > 0.9


def test_documents_that_come_all_the_time_halve_nothing() -> None:
    late = {}
    for name in ("bursts_fixed", "bursts_adapting"):
        played = play_documents(BURSTS[name], seed=1, seconds=160.0)
        assert bool(played.changes) == (name == "bursts_adapting")
        # After 80 s enough was seen.
        late[name] = percentile(ttfts(o for o in played.outcomes if o.job.at > 80.0), 0.99)
    assert late["bursts_adapting"] < 0.8 * late["bursts_fixed"]


def test_equal_seeds_give_equal_numbers() -> None:
    policy = replace(POLICIES["split_adapting"], phases=((60.0, "passages"),))
    once, again = play(policy, 3), play(policy, 3)
    assert once.digest == again.digest
    assert once.changes == again.changes != []
    assert tuning.phase(70.0, policy) == "passages"
