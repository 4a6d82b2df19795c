"""Planted faults that the tests must notice: proof that they bite.

Each mutant is one line of the scheduler changed in a copy of the package; seeded walks, or one
named test, in a process of its own have to fail with it, and to pass without.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

MUTANTS = {
    "a slot is never given back": ("ledger.py", "        del self.flights[flight.ticket.id]\n", ""),
    "a class count is never given back": (
        "books.py",
        "        self.pools.count(flight, -1)\n",
        "",
    ),
    "a backlog is given back twice": (
        "ledger.py",
        "self.prefill_backlog -= tokens",
        "self.prefill_backlog -= 2 * tokens",
    ),
    "a backend's limit is off by one": (
        "ledger.py",
        "len(self.flights) < self.limit.effective",
        "len(self.flights) <= self.limit.effective",
    ),
    "a vacancy is not noticed": ("books.py", "self.fleet.emptied(member)", "pass"),
    "a vacancy is counted twice": ("fleet.py", "self.vacant += 1", "self.vacant += 2"),
    "vacancies are not recounted": (
        "fleet.py",
        "        for member in self:\n",
        "        for member in ():\n",
    ),
    "an event that frees a slot stirs nothing": (
        "books.py",
        "        self.stirred = True\n        for pool",
        "        for pool",
    ),
    "an arrival stirs nothing": (
        "books.py",
        "queued.expires)\n        self.stirred = True\n",
        "queued.expires)\n",
    ),
    "a class limit is not looked at": (
        "pools.py",
        "            and self.in_flight < self.limit.effective\n",
        "",
    ),
    "a deadline is late": ("lazyheap.py", "first[0] <= key", "first[0] < key"),
    "nobody is woken for a deadline": (
        "core.py",
        "min(at, self._dispatcher.retry_at, books.expiry.least())",
        "min(at, self._dispatcher.retry_at)",
    ),
    "the first to recover is put off, and is asked as before": (
        "burst.py",
        "            self._find_next()\n        else:\n",
        "            pass\n        else:\n",
    ),
    "a tenant's share is never given back": (
        "queues.py",
        "            self.shares.remove(ticket)\n",
        "            pass\n",
    ),
    "an early wake-up is not asked for": ("core.py", "wakeup < self._announced", "False"),
    "an expired ticket keeps its deadline": (
        "books.py",
        "        pool.queue.remove(queued)\n        self.expiry.left()\n",
        "        pool.queue.remove(queued)\n",
    ),
    "a draining scheduler takes tickets": ("core.py", "if books.draining or not", "if not"),
    "weight 0 takes tickets": ("fleet.py", " and backend.weight > 0", ""),
    "avoided backends are taken": ("fleet.py", "not in avoid] or ready", "not in ()] or ready"),
    "a down backend takes tickets": ("fleet.py", "backend.state is BackendState.READY and", ""),
    "an abandoned ticket stays queued": (
        "core.py",
        "            self._books.dequeue(queued)\n        else",
        "            pass\n        else",
    ),
    "the queue is not emptied when all is down": (
        "core.py",
        "if not alive[model]:",
        "if False:",
    ),
    "a removed backend is kept": ("fleet.py", "if member.removed and not", "if False and not"),
    "a limit does not recover": ("burst.py", "self._share = min(1.0,", "min(1.0,"),
    "a wrong class": ("pools.py", "if tokens <= bound", "if tokens < bound"),
    "a tenant's count is never given back": ("queues.py", "        own.remove(ticket)\n", ""),
    "a blocked class sleeps on": (
        "books.py",
        "            pool.asleep_until, pool.needs_slot = -inf, False\n",
        "            pass\n",
    ),
}

POLICIES = "test_policies"
FAIRNESS = "test_fairness"
CACHED = "test_cached_prompts"
NAMED = {
    "cached tokens count for a burst": (
        ("core.py", "if work > books", "if ticket.prompt_tokens > books"),
        (POLICIES, "test_a_cached_prompt_is_no_burst_beside_one_that_is_not_cached"),
    ),
    "cached tokens count for a burst in flight": (
        ("books.py", "bursty = tokens >", "bursty = ticket.prompt_tokens >"),
        (POLICIES, "test_long_prompts_that_are_cached_are_no_burst_and_are_not_held"),
    ),
    "cached tokens count for whether there is time": (
        ("books.py", "m.cost.seconds(work, cached)", "m.cost.seconds(ticket.prompt_tokens)"),
        (POLICIES, "test_what_is_cached_counts_for_whether_an_answer_can_come_in_time"),
    ),
    "a cached prompt is late for those before it": (
        ("books.py", "read = member.cached_backlog + cached", "read = 0"),
        (
            CACHED,
            "test_first_tokens_of_cached_prompts_are_not_late_for_what_was_before_them",
        ),
    ),
    "cached prompts do not wait for each other": (
        ("ledger.py", "self._free_at += cost.share(tokens, flight.cached)", "pass"),
        (
            CACHED,
            "test_an_engine_that_reads_cached_prompts_one_by_one_has_at_most_four_of_them",
        ),
    ),
    "a full step of cached prompts is sent ahead": (
        ("admission.py", "if reading > hold.ahead", "if False"),
        (
            CACHED,
            "test_an_engine_that_reads_cached_prompts_one_by_one_has_at_most_four_of_them",
        ),
    ),
    "what is decoded beside cached prompts takes no time": (
        ("admission.py", "max(_WORTH, stages) + member.pace.itl", "max(_WORTH, stages)"),
        (CACHED, "test_an_engine_that_decodes_beside_gets_as_many_more_as_come_within_a_step"),
    ),
    "a cached backlog is given back as a whole": (
        ("ledger.py", "self.cached_backlog -= flight.cached", "self.cached_backlog = 0"),
        (CACHED, "test_the_next_cached_prompt_goes_when_a_first_token_has_come"),
    ),
    "little to read is held for": (
        ("admission.py", "_WORTH = 0.1", "_WORTH = 0.0"),
        (CACHED, "test_little_to_read_is_not_worth_holding_a_prompt_for"),
    ),
    "a cached prompt's first token wakes nobody": (
        ("books.py", " or flight.lengthy", ""),
        (CACHED, "test_the_next_cached_prompt_goes_when_a_first_token_has_come"),
    ),
    "reading takes no time from who is in a hurry": (
        ("books.py", "m.cost.seconds(work, cached)", "m.cost.seconds(work)"),
        (CACHED, "test_an_answer_that_cannot_come_in_time_for_its_reading_expires"),
    ),
    "first tokens that are handed out one by one are a step each": (
        ("estimate.py", "_SAME_SHARE = 0.5", "_SAME_SHARE = 0.0"),
        (CACHED, "test_the_price_of_a_cached_token_shows_in_prompts_that_share_a_step"),
    ),
    "a second place in a cache is worth nothing": (
        ("placement.py", "_LASTING = 0.4", "_LASTING = 0.0"),
        (
            POLICIES,
            "test_a_prefix_is_computed_once_more_where_that_takes_little_longer_than_waiting",
        ),
    ),
    "an engine never evicts": (
        ("affinity.py", "cache.stored += tokens", "pass"),
        (POLICIES, "test_a_prefix_is_forgotten_when_its_engine_has_stored_a_caches_worth_since"),
    ),
    "a lender's reserve is lent": (
        ("pools.py", "floor(limit * (1.0 - self._spill_reserve))", "limit"),
        (POLICIES, "test_the_reserve_of_a_lender_stays_free_and_what_ends_there_makes_room"),
    ),
    "a stranger's end wakes nobody": (
        ("books.py", " or member.lends_to(name)", ""),
        (POLICIES, "test_the_reserve_of_a_lender_stays_free_and_what_ends_there_makes_room"),
    ),
    "a queueing class lends": (
        ("pools.py", "self._by_name[c].queue for c", "False for c"),
        (POLICIES, "test_nobody_spills_over_to_a_class_that_queues_itself_until_its_queue_is_gone"),
    ),
    "a long prompt spills over everywhere": (
        ("dispatch.py", "return offer if delay <= _ROUNDING else None", "return offer"),
        (POLICIES, "test_a_long_prompt_spills_over_only_where_short_ones_keep_an_open_backend"),
    ),
    "a tenant's tokens have no bound": (
        ("pools.py", "spec.tenant_queue_tokens, spec", "None, spec"),
        (POLICIES, "test_a_tenant_may_not_fill_the_queue_alone"),
    ),
    "late first tokens are never forgotten": (
        ("burst.py", "times[0] <= now - spec.window", "False"),
        (POLICIES, "test_first_tokens_that_come_late_halve_the_backends_own_limit"),
    ),
    "a long prefill counts as late": (
        ("books.py", "cost.share(member.prefill_backlog + tokens, read)", "0.0"),
        (POLICIES, "test_a_long_prefill_is_not_late"),
    ),
    "a report of tokens counts from the start": (
        (
            "ledger.py",
            "        flight.seen = now\n        if self._heads",
            "        if self._heads",
        ),
        (POLICIES, "test_the_time_between_tokens_is_learned_from_one_report_at_the_end"),
    ),
    "an engine's steps are not looked at": (
        ("admission.py", "max(hold.ahead, member.pace.itl)", "hold.ahead"),
        (
            POLICIES,
            "test_the_next_is_sent_a_decode_step_before_the_last_is_through",
        ),
    ),
    "weights do not count": (
        ("queues.py", " / self._weights.get(tenant, 1.0)", ""),
        (FAIRNESS, "test_what_waiting_tenants_got_differs_by_at_most_one_largest_prompt_each"),
    ),
    "priority has no bound": (
        ("books.py", "ticket.priority * settings.ageing", "ticket.priority * 1e6"),
        (FAIRNESS, "test_a_priority_overtakes_only_what_came_at_most_its_head_start_before_it"),
    ),
    "short prompts always go first": (
        ("dispatch.py", "    return (rank if", "    return 1e9\n    return (rank if"),
        (FAIRNESS, "test_short_prompts_overtake_a_long_one_for_a_bounded_time_only"),
    ),
}

WALKS = """
from tests.scheduler.driver import walk
for seed in range(3):
    walk(seed, 400)
"""


NAMED_TEST = """
from tests.scheduler import {0}
{0}.{1}()
"""


def _fails(package_root: Path, probe: str) -> bool:
    run = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=package_root,
        env={"PYTHONPATH": str(package_root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return run.returncode != 0


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("scheduler", "tests/scheduler"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "tests" / "__init__.py").touch()
    return tmp_path


def _plant(copy: Path, file: str, old: str, new: str) -> None:
    path = copy / "scheduler" / file
    source = path.read_text()
    assert old in source, "the mutant's line is gone: plant it anew"
    path.write_text(source.replace(old, new, 1))


def test_the_walks_pass_without_a_mutant(copy: Path) -> None:
    assert not _fails(copy, WALKS)


def test_the_named_tests_pass_without_a_mutant(copy: Path) -> None:
    named = {test for _, test in NAMED.values()}
    assert not _fails(copy, "".join(NAMED_TEST.format(*test) for test in sorted(named)))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_walks_notice(name: str, copy: Path) -> None:
    _plant(copy, *MUTANTS[name])
    assert _fails(copy, WALKS)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_notices(name: str, copy: Path) -> None:
    mutant, test = NAMED[name]
    _plant(copy, *mutant)
    assert _fails(copy, NAMED_TEST.format(*test))
