"""The search: what is measured, in which order, when it stops, and what it chooses."""

from pathlib import Path

import pytest

from bench.tuning.book import Book, BookFailed
from bench.tuning.compare import UNSEEN, compare
from bench.tuning.objective import Aim, Window
from bench.tuning.search import Budget, NothingAllowed, Search
from bench.tuning.space import Flags
from tests.bench.tuning.landscape import SPACE, Landscape, response, window

BUDGET = Budget(windows=2, evaluations=25)
BRIEF = Budget(windows=2, evaluations=10)


class Stopped(Exception):
    """The search was interrupted."""


def search(
    landscape: Landscape, budget: Budget = BUDGET, file: Path | None = None, seed: int = 0
) -> Search:
    book = Book(SPACE, {"task": 1}, seed, file)
    return Search(landscape, book, Aim.TTFT, budget, tell=lambda *_: None)


async def test_the_defaults_come_first_then_the_ladder_then_the_optimiser() -> None:
    landscape = Landscape()
    one = search(landscape)
    await one.run()
    order = list(dict.fromkeys(flags for flags, _ in landscape.asked))
    assert order[:2] == [None, SPACE.start]
    phases = [entry.phase for entry in one.book.entries.values()]
    assert phases[:4] == ["ladder"] * 4
    assert "search" in phases
    ladder = [flags.max_num_seqs for flags in list(one.book.entries)[:4]]
    assert ladder == [16, 32, 64, 8], "up, which is in vain at the end, and down"
    assert landscape.open == 0


async def test_it_finds_the_best_and_measures_nothing_twice() -> None:
    landscape = Landscape()
    one = search(landscape)
    await one.run()
    assert one.best().flags == Flags(32, 2048, 512, 0.9)
    assert len(set(landscape.asked)) == len(landscape.asked)
    assert one.evaluations <= 25
    assert one.evaluations == len(landscape.asked) / 2


async def test_a_hopeless_candidate_is_cut_short() -> None:
    landscape = Landscape()
    one = search(landscape)
    await one.run()
    cut = [entry for entry in one.book.entries.values() if entry.cut_short]
    assert cut
    assert all(len(entry.windows) == 1 for entry in cut)
    scores = [response(entry.flags) for entry in one.book.entries.values()]
    assert min(response(entry.flags) for entry in cut) > sorted(scores)[2]


async def test_what_is_ruled_out_is_never_chosen() -> None:
    def full(flags: Flags | None, _: int) -> Window:
        usage = 0.99 if flags is not None and flags.max_num_seqs > 16 else 0.5
        return window(response(flags), kv_usage=usage)

    one = search(Landscape(full))
    await one.run()
    assert one.best().flags == Flags(16, 2048, 512, 0.9)
    over = [entry for flags, entry in one.book.entries.items() if flags.max_num_seqs > 16]
    assert over
    assert all(len(entry.windows) == 1 for entry in over), "a full cache does not get emptier"


async def test_less_throughput_than_the_defaults_have_is_ruled_out() -> None:
    def starved(flags: Flags | None, _: int) -> Window:
        seconds = 40.0 if flags is not None and flags.long_prefill_token_threshold else 20.0
        return window(response(flags), seconds=seconds)

    one = search(Landscape(starved))
    await one.run()
    assert one.best().flags.long_prefill_token_threshold == 0


async def test_when_everything_is_ruled_out_it_says_so() -> None:
    one = search(Landscape(lambda flags, _: window(1.0, preemptions=100.0)), Budget(1, 4))
    await one.run()
    with pytest.raises(NothingAllowed):
        one.best()


async def test_of_those_alike_the_one_nearest_to_the_rules_wins() -> None:
    one = search(Landscape(lambda *_: window(100.0)))
    await one.run()
    assert one.best().flags == SPACE.start


async def test_a_noisy_step_of_the_ladder_is_repeated_with_the_same_requests() -> None:
    asked = 0

    def noisy(_: Flags | None, number: int) -> Window:
        nonlocal asked
        asked += 1
        return window(100.0 if asked % 2 else 500.0)

    landscape = Landscape(noisy)
    one = search(landscape, Budget(windows=2, evaluations=6))
    await one.run()
    assert len(one.book.entries[SPACE.start].windows) == 4
    numbers = [number for flags, number in landscape.asked if flags == SPACE.start]
    assert numbers == [0, 1, 0, 1]
    assert one.evaluations >= 1 + 2, "a repeated step counts as two"


async def test_without_time_nothing_but_the_defaults_is_begun() -> None:
    landscape = Landscape()
    await search(landscape, Budget(windows=2, seconds=0.0)).run()
    assert {flags for flags, _ in landscape.asked} == {None}


async def test_when_all_is_known_it_ends() -> None:
    space = SPACE.only(["max-num-seqs", "gpu-memory-utilization"])
    book = Book(space, {}, 0, None)
    one = Search(Landscape(), book, Aim.TTFT, Budget(windows=1), tell=lambda *_: None)
    await one.run()
    assert one.book.entries.keys() == set(space.candidates)


@pytest.mark.parametrize("after", [4, 13])
async def test_a_stopped_search_goes_on_as_if_it_had_not_been(tmp_path: Path, after: int) -> None:
    whole = search(Landscape(), BRIEF)
    await whole.run()
    asked = 0

    def stopping(flags: Flags | None, _: int) -> Window:
        nonlocal asked
        asked += 1
        if asked == after:
            raise Stopped
        return window(response(flags))

    with pytest.raises(Stopped):
        await search(Landscape(stopping), BRIEF, tmp_path / "study").run()
    rest = Landscape()
    resumed = search(rest, BRIEF, tmp_path / "study")
    known = len(resumed.book.entries)
    lost = resumed.evaluations - known  # part of a candidate, or of the defaults
    await resumed.run()
    entries = list(resumed.book.entries)
    assert entries == list(whole.book.entries)[: len(entries)]
    assert len(entries) >= len(whole.book.entries) - 1 - lost
    assert len(rest.asked) < 2 * len(whole.book.entries) - known


async def test_another_search_s_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study"
    await search(Landscape(), Budget(windows=1, evaluations=2), file).run()
    with pytest.raises(BookFailed, match="differs in task"):
        Book(SPACE, {"task": 2}, 0, file)


async def test_the_comparison_is_in_turn_and_on_unseen_requests() -> None:
    landscape = Landscape()
    chosen = Flags(32, 2048, 512, 0.9)
    found = await compare(landscape, chosen, Aim.TTFT, 4)
    assert found.better
    assert [number for _, number in landscape.asked] == [
        number for number in range(UNSEEN, UNSEEN + 4) for _ in "ab"
    ]
    firsts = [flags for flags, _ in landscape.asked[::2]]
    assert firsts == [chosen, None, chosen, None]
