"""Playbooks for what the scheduler learns and weighs: holds, limits, fairness, caches, rates."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.burst import BurstWindow
from scheduler.estimate import Meter, PrefillCost
from scheduler.events import (
    Abandoned,
    Arrived,
    BackendChanged,
    BackendRemoved,
    Decided,
    Dispatch,
    Failed,
    Finished,
    FirstToken,
    LoadSeen,
    Progress,
    Reason,
    Reject,
    SettingsChanged,
    Woke,
)
from scheduler.model import (
    AdaptSpec,
    AffinitySpec,
    BackendState,
    BurstSpec,
    ClassSpec,
    HoldSpec,
    Placement,
    Settings,
    TenantSpec,
)
from tests.scheduler.playbook import LONG, ONE_CLASS, SHORT, TWO_CLASSES, Playbook, backend, ticket

_LONG_ONLY = frozenset({"long"})
_QUIET = replace(TWO_CLASSES, burst=BurstSpec(in_flight=None))


# --- holding long prompts -------------------------------------------------------------------


def test_the_second_long_prompt_waits_so_that_one_backend_stays_open() -> None:
    play = Playbook(_QUIET, backend("a"), backend("b"))
    assert play.arrive(0.0, "l1", 8000) == "a"
    assert play.arrive(0.1, "l2", 8000) is None
    assert play.arrive(0.2, "s", 100) == "b"


def test_it_goes_when_the_first_is_nearly_over_at_the_time_asked_for() -> None:
    play = Playbook(_QUIET, backend("a"), backend("b"))
    play.arrive(0.0, "l1", 4000)
    play.arrive(0.1, "l2", 8000)
    at = play.s.next_wakeup()
    assert at == pytest.approx(0.4 - HoldSpec().tolerance)
    assert play(at, Woke()) == [Dispatch("l2", "b", "long", "woke")]


def test_the_next_is_sent_a_decode_step_before_the_last_is_through() -> None:
    play = Playbook(_QUIET, backend("a"))
    play.arrive(0.0, "talk", 100)
    play(0.01, FirstToken("talk"))
    play(2.01, Progress("talk", 21))
    assert play.arrive(3.0, "l1", 8000) == "a"
    play.arrive(3.0, "l2", 8000)
    assert play.s.next_wakeup() == pytest.approx(3.8 - 0.1, abs=0.01)


def test_a_long_prompt_follows_one_nearly_over_rather_than_take_the_last_open_backend() -> None:
    play = Playbook(replace(_QUIET, hold=HoldSpec(tolerance=0.001)), backend("a"), backend("b"))
    assert play.arrive(0.0, "l1", 3000) == "a"
    assert play.arrive(0.29, "l2", 8000) == "a"


def test_it_goes_at_once_when_the_first_ends_early() -> None:
    play = Playbook(_QUIET, backend("a"), backend("b"))
    play.arrive(0.0, "l1", 8000)
    play.arrive(0.1, "l2", 8000)
    assert play(0.2, FirstToken("l1")) == [Dispatch("l2", "b", "long", "first_token:l1")]


def test_patience_is_a_multiple_of_the_prompts_own_prefill() -> None:
    """After it the weaker rule holds: openings spread over the prompt's own time."""
    play = Playbook(_QUIET, backend("a"), backend("b"))
    play.arrive(0.0, "l1", 80_000)
    play.arrive(0.0, "l2", 8000)
    hold = HoldSpec()
    play(hold.patience * 0.8 - 0.01, Woke())
    assert play(hold.patience * 0.8, Woke()) == []
    assert play(2 * hold.patience * 0.8, Woke()) == [Dispatch("l2", "b", "long", "woke")]


def test_a_load_that_one_backend_cannot_carry_is_spread_without_patience() -> None:
    play = Playbook(replace(_QUIET, hold=HoldSpec(fill=0.5)), backend("a"), backend("b"))
    for n in range(20):
        play.arrive(n, f"l{n}", 8000)
        play(n + 0.8, FirstToken(f"l{n}"))
        play(n + 0.8, Finished(f"l{n}"))
        for s in range(3):
            play.arrive(n + 0.9, f"s{n}.{s}", 1)
            play(n + 0.9, Abandoned(f"s{n}.{s}"))
    assert play.arrive(20.0, "first", 8000) == "a"
    assert play.arrive(20.0, "second", 8000) is None
    assert play.s.next_wakeup() == pytest.approx(20.4, abs=0.01)


def test_nothing_is_held_for_short_prompts_that_do_not_come() -> None:
    play = Playbook(_QUIET, backend("a"), backend("b"))
    for n in range(20):
        play.arrive(n, f"l{n}", 8000)
        play(n + 0.8, FirstToken(f"l{n}"))
        play(n + 0.8, Finished(f"l{n}"))
    assert play.arrive(20.0, "first", 8000) == "a"
    assert play.arrive(20.0, "second", 8000) == "b"


def test_a_single_backend_takes_long_prompts_at_once() -> None:
    play = Playbook(_QUIET, backend("a"))
    assert play.arrive(0.0, "l1", 30_000) == "a"


def test_backends_of_long_prompts_alone_are_not_held() -> None:
    play = Playbook(
        _QUIET, backend("s"), backend("x", classes=_LONG_ONLY), backend("y", classes=_LONG_ONLY)
    )
    assert {play.arrive(0.0, f"l{n}", 8000) for n in range(3)} == {"s", "x", "y"}


def test_a_prompt_of_one_step_does_not_block_and_is_sent_while_a_step_has_room() -> None:
    play = Playbook(_QUIET, backend("a"))
    assert play.arrive(0.0, "m1", 1100) == "a"
    assert play.arrive(0.0, "m2", 1100) == "a"
    assert play.arrive(0.0, "m3", 1100) is None


def test_an_engine_that_chunks_long_prompts_stays_open_beside_one() -> None:
    chunked = backend("a", long_chunk=256)
    play = Playbook(_QUIET, chunked, replace(chunked, name="b"))
    assert play.arrive(0.0, "l1", 8000) == "a"
    assert play.arrive(0.0, "l2", 8000) == "b"


def test_a_new_chunk_size_recounts_what_stands_before_a_short_prompt() -> None:
    play = Playbook(_QUIET, backend("a"), backend("b"))
    play.arrive(0.0, "l1", 8000)
    play.arrive(0.0, "l2", 8000)
    opened = play(0.0, BackendChanged(backend("a", long_chunk=256)))
    assert opened == [Dispatch("l2", "b", "long", "backend_changed:a")]


def test_old_long_prompts_outrank_short_ones_for_one_ticket_at_a_time() -> None:
    play = Playbook(replace(_QUIET, ageing=5.0, queue_wait=100.0), backend("a", limit=1))
    play.arrive(0.0, "x")
    play.arrive(0.0, "old1", 8000)
    play.arrive(0.0, "old2", 8000)
    play.arrive(6.0, "s1")
    play.arrive(6.0, "s2")
    order, running = [], "x"
    for step in range(4):
        (sent,) = play(7.0 + step, Finished(running))
        assert isinstance(sent, Dispatch)
        running = sent.ticket_id
        order.append(running)
    assert order == ["old1", "s1", "s2", "old2"]


def test_an_old_long_prompt_claims_a_backend_that_short_ones_keep_busy() -> None:
    slow = Settings(classes=(replace(SHORT, ttft_target=10.0), LONG), ageing=1.0)
    play = Playbook(slow, backend("a", prefill_rate=1000.0))
    for n in range(4):
        assert play.arrive(0.0, f"s{n}", 1000) == "a"
    assert play.arrive(0.0, "old", 8000) is None
    assert play.arrive(0.9, "younger", 100) == "a"
    assert play.arrive(1.5, "too young", 100) is None
    for n in range(4):
        assert play(n + 1.5, FirstToken(f"s{n}")) == []
    sent = play(4.6, FirstToken("younger"))
    assert sent[0] == Dispatch("old", "a", "long", "first_token:younger")


# --- admission --------------------------------------------------------------------------------


def test_short_prompts_wait_here_when_a_backend_could_not_answer_in_time() -> None:
    play = Playbook(ONE_CLASS, backend("a", prefill_rate=10_000.0))
    assert [play.arrive(0.0, f"t{n}", 2000) for n in range(4)] == ["a", "a", "a", None]
    assert play.s.next_wakeup() == pytest.approx(0.2)


def test_a_full_kv_cache_keeps_long_prompts_away_until_it_is_seen_emptier_or_long_ago() -> None:
    play = Playbook(_QUIET, backend("a"))
    play(0.0, _load(kv=0.97))
    assert play.arrive(0.0, "l1", 8000) is None
    assert play.arrive(0.0, "s", 100) == "a"
    play(0.1, FirstToken("s"))
    assert play(0.5, _load(kv=0.90)) == [Dispatch("l1", "a", "long", "load_seen:a")]
    play(0.6, FirstToken("l1"))
    play(1.0, _load(kv=0.97))
    play.arrive(1.0, "l2", 8000)
    assert play.s.next_wakeup() == 11.0
    assert play(11.0, Woke()) == [Dispatch("l2", "a", "long", "woke")]


def test_a_load_of_a_backend_that_is_gone_is_ignored() -> None:
    assert Playbook(ONE_CLASS)(0.0, _load(kv=0.5)) == []


# --- limits -----------------------------------------------------------------------------------


def test_preemptions_and_refusals_halve_the_backends_own_limit() -> None:
    play = Playbook(ONE_CLASS, backend("a", limit=8))
    assert play(0.0, _load(preemptions=3)) == []
    assert play(1.0, _load(preemptions=3)) == []
    assert play(2.0, _load(preemptions=4)) == [
        Decided("a", "the engine preempts", 8, 4, "load_seen:a")
    ]
    play.arrive(3.5, "t")
    assert play(3.5, Failed("t", busy=True)) == [
        Decided("a", "the engine is busy", 4, 2, "failed:t")
    ]
    play(4.0, BackendRemoved("a"))
    assert play.s.next_wakeup() is None


def test_bursts_are_counted_by_prompts_and_by_tokens() -> None:
    by_count = BurstSpec(in_flight=None, prompts=3)
    by_tokens = BurstSpec(in_flight=None, tokens=9000)
    for spec, why in [
        (by_count, "burst: 3 long prompts in 1 s"),
        (by_tokens, "burst: 9000 tokens of long prompts in 1 s"),
    ]:
        play = Playbook(replace(TWO_CLASSES, burst=spec), backend("a", limit=8))
        play.arrive(0.0, "old", 3000)
        play.arrive(1.0, "l1", 3000)
        play.arrive(1.1, "l2", 3000)
        assert play(1.2, Arrived(ticket("l3", 3000))) == [Decided("long", why, 6, 3, "arrived:l3")]


def test_what_a_burst_remembers_is_bounded() -> None:
    window, spec = BurstWindow(), BurstSpec(in_flight=None, tokens=10_000)
    for _ in range(5000):
        window.triggers(spec, 3000, 0.0, 0.0)
    why = window.triggers(spec, 3000, 0.0, 0.5)
    assert why == f"burst: {4096 * 3000} tokens of long prompts in 1 s"


def test_a_burst_may_halve_every_pool() -> None:
    spec = BurstSpec(whole_pool=True)
    play = Playbook(replace(TWO_CLASSES, burst=spec), backend("a", limit=8))
    play.arrive(0.0, "l1", 3000)
    halved = [c for c in play(0.1, Arrived(ticket("l2", 3000))) if isinstance(c, Decided)]
    assert [(c.pool, c.before, c.after) for c in halved] == [("short", 8, 4), ("long", 6, 3)]


def test_the_floor_of_a_pool_is_one_request_per_backend() -> None:
    spec = BurstSpec(window=0.0, prompts=1, in_flight=None)
    play = Playbook(
        Settings(classes=(SHORT, LONG), burst=spec),
        *(backend(name, limit=4, classes=_LONG_ONLY) for name in "abc"),
    )
    for n in range(9):
        play.arrive(n / 10, f"l{n}", 3000)
    (long,) = [pool for pool in play.s.snapshot().pools if pool.service_class == "long"]
    assert long.limit_effective == 3


def test_new_settings_keep_a_halved_limit_and_its_recovery() -> None:
    play = Playbook(TWO_CLASSES, backend("a", limit=8, prefill_rate=100.0))
    play.arrive(0.0, "l1", 3000)
    play.arrive(0.1, "l2", 3000)
    play(0.2, SettingsChanged(replace(TWO_CLASSES, queue_wait=30.0)))
    assert play(1.1, Woke()) == [Decided("long", "limit recovers", 3, 5, "woke")]


def test_long_prompts_that_are_cached_are_no_burst_and_are_not_held() -> None:
    settings = replace(TWO_CLASSES, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("a", limit=40))
    prefix = tuple(range(80))
    assert play.arrive(0.0, "first", 8050, prefix=prefix) == "a"
    play(0.8, FirstToken("first"))
    again = [play.arrive(1.0, f"t{n}", 8050, prefix=prefix) for n in range(24)]
    assert again == ["a"] * 24
    assert not [c for c in play(1.0, Arrived(ticket("fresh", 3000))) if isinstance(c, Decided)]


def test_a_cached_prompt_is_no_burst_beside_one_that_is_not_cached() -> None:
    settings = replace(TWO_CLASSES, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("a", limit=40))
    prefix = tuple(range(80))
    play.arrive(0.0, "first", 8050, prefix=prefix)
    play(0.8, FirstToken("first"))
    halved = []
    for name, tokens, held in [
        ("fresh", 3000, ()),
        ("cached", 8050, prefix),
        ("fresh too", 3000, ()),
    ]:
        told = play(1.0, Arrived(ticket(name, tokens, prefix=held)))
        halved += [name for command in told if isinstance(command, Decided)]
    assert halved == ["fresh too"]


def test_what_is_cached_counts_for_whether_an_answer_can_come_in_time() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend(limit=1, prefill_rate=1000.0))
    prefix = tuple(range(40))
    play.arrive(0.0, "first", 4001, prefix=prefix)
    play.arrive(1.0, "again", 4001, prefix=prefix, answer_by=10.0)
    assert play.s.next_wakeup() == pytest.approx(9.999)


def test_first_tokens_that_come_late_halve_the_backends_own_limit() -> None:
    spec = AdaptSpec(late=2, window=1.0)
    play = Playbook(replace(ONE_CLASS, adapt=spec), backend("a", limit=8))
    late = [
        (0.0, 0.59, []),
        (1.0, 0.62, []),
        (3.0, 0.9, []),
        (3.1, 0.9, [Decided("a", "first tokens come late", 8, 4, "first_token:t3")]),
    ]
    for n, (at, took, told) in enumerate(late):
        play.arrive(at, f"t{n}", 100)
        assert play(at + took, FirstToken(f"t{n}")) == told


def test_a_long_prefill_is_not_late() -> None:
    play = Playbook(replace(ONE_CLASS, adapt=AdaptSpec(late=1)), backend("a", prefill_rate=1000.0))
    play.arrive(0.0, "t1", 5000)
    assert play(5.5, FirstToken("t1")) == []
    play.arrive(6.0, "t2", 400)
    assert play(6.9, FirstToken("t2")) == []


def test_late_first_tokens_may_be_ignored_and_those_of_a_class_that_is_gone_are() -> None:
    for settings in (replace(ONE_CLASS, adapt=AdaptSpec(late=None)), TWO_CLASSES):
        play = Playbook(replace(ONE_CLASS, adapt=AdaptSpec(late=1)), backend("a", limit=8))
        play.arrive(0.0, "t", 100)
        play(1.0, SettingsChanged(settings))
        assert play(9.0, FirstToken("t")) == []


def test_a_burst_prompt_whose_class_is_gone_counts_nowhere_when_it_is_through() -> None:
    play = Playbook(_QUIET, backend("a", limit=8))
    play.arrive(0.0, "long", 3000)
    play(0.1, SettingsChanged(ONE_CLASS))
    assert play(0.5, FirstToken("long")) == []
    assert play(0.6, Finished("long")) == []


# --- spilling ---------------------------------------------------------------------------------


_SPILL = replace(_QUIET, classes=(replace(SHORT, spill=("long",)), replace(LONG, spill=("short",))))
_SHORT_ONLY = frozenset({"short"})


def test_a_class_uses_anothers_idle_backend_when_its_own_are_full() -> None:
    play = Playbook(
        _SPILL, backend("s", classes=_SHORT_ONLY, limit=1), backend("l", classes=_LONG_ONLY)
    )
    assert [play.arrive(0.0, f"s{n}") for n in range(3)] == ["s", "l", None]
    sent = play(0.1, FirstToken("s1"))
    assert sent == [Dispatch("s2", "l", "short", "first_token:s1")]


def test_without_the_setting_nothing_spills() -> None:
    play = Playbook(
        _QUIET, backend("s", classes=_SHORT_ONLY, limit=1), backend("l", classes=_LONG_ONLY)
    )
    assert [play.arrive(0.0, f"s{n}") for n in range(2)] == ["s", None]


def test_the_reserve_of_a_lender_stays_free_and_what_ends_there_makes_room() -> None:
    play = Playbook(
        replace(_SPILL, spill_reserve=0.5),
        backend("s", classes=_SHORT_ONLY, limit=1),
        backend("l", classes=_LONG_ONLY, limit=4),
    )
    play.arrive(0.0, "own")
    for n in range(2):
        assert play.arrive(n, f"s{n}") == "l"
        play(n + 0.1, FirstToken(f"s{n}"))
    assert play.arrive(2.0, "s2") is None
    assert play(2.5, Finished("s0")) == [Dispatch("s2", "l", "short", "finished:s0")]


def test_nobody_spills_over_to_a_class_that_queues_itself_until_its_queue_is_gone() -> None:
    play = Playbook(
        _SPILL,
        backend("s", classes=_SHORT_ONLY, limit=1),
        backend("l", classes=_LONG_ONLY, limit=4),
    )
    play(0.0, _load(backend="l", kv=0.99))
    play.arrive(0.0, "own")
    assert play.arrive(0.1, "long", 500_000) is None
    assert play.arrive(0.1, "short") is None
    assert play(0.2, Abandoned("long")) == [Dispatch("short", "l", "short", "abandoned:long")]


def test_a_long_prompt_spills_over_only_where_short_ones_keep_an_open_backend() -> None:
    play = Playbook(
        _SPILL,
        backend("s1", classes=_SHORT_ONLY),
        backend("s2", classes=_SHORT_ONLY),
        backend("l", classes=_LONG_ONLY, limit=1),
    )
    assert play.arrive(0.0, "l1", 8000) == "l"
    assert play.arrive(0.0, "l2", 8000) == "s1"
    assert play.arrive(0.0, "l3", 8000) is None
    assert play.arrive(0.0, "s") == "s2"


def test_a_class_spills_over_to_classes_that_exist() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Settings(classes=(replace(SHORT, spill=("nobody",)), LONG))


# --- order ------------------------------------------------------------------------------------


def test_a_heavier_tenant_gets_more() -> None:
    settings = replace(ONE_CLASS, tenants=(TenantSpec("gold", 3.0),))
    play = Playbook(settings, backend(limit=1))
    play.arrive(0.0, "x", tenant="other")
    for n in range(6):
        play.arrive(0.1, f"gold{n}", 300, tenant="gold")
        play.arrive(0.1, f"tin{n}", 300, tenant="tin")
    order, running = [], "x"
    for step in range(8):
        (sent,) = play(1.0 + step, Finished(running))
        assert isinstance(sent, Dispatch)
        running = sent.ticket_id
        order.append(running[:3])
    assert order.count("gol") == 6


def test_a_nearer_deadline_goes_first_and_a_farther_one_not_last() -> None:
    play = Playbook(replace(ONE_CLASS, queue_wait=60.0), backend(limit=1))
    play.arrive(0.0, "x")
    play.arrive(0.0, "patient", deadline=600.0)
    play.arrive(1.0, "plain")
    play.arrive(2.0, "urgent", deadline=50.0)
    order, running = [], "x"
    for step in range(3):
        (sent,) = play(3.0 + step, Finished(running))
        assert isinstance(sent, Dispatch)
        running = sent.ticket_id
        order.append(running)
    assert order == ["urgent", "patient", "plain"]


def test_a_ticket_expires_when_its_answer_could_no_longer_come_in_time() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1, prefill_rate=1000.0))
    play.arrive(0.0, "x")
    play.arrive(0.0, "t", 4000, answer_by=10.0)
    assert play.s.next_wakeup() == 6.0


def test_a_tenant_may_not_fill_the_queue_alone() -> None:
    spec = ClassSpec(
        "all", tenant_queue_limit=1, tenant_queue_tokens=200, queue_tokens=250, queue_bytes=90
    )
    play = Playbook(Settings(classes=(spec,)), backend(limit=1))
    full, own = (f"rejected: {r}" for r in (Reason.QUEUE_FULL, Reason.TENANT_QUEUE_FULL))
    play.arrive(0.0, "x")
    assert play.arrive(0.0, "c1", 201, tenant="c") == own
    assert play.arrive(0.0, "a1", tenant="a", body_bytes=40) is None
    assert play.arrive(0.0, "a2", tenant="a") == own
    assert play.arrive(0.0, "b1", tenant="b", body_bytes=60) == full
    assert play.arrive(0.0, "b2", 160, tenant="b") == full
    assert play.arrive(0.0, "b3", 150, tenant="b", body_bytes=50) is None


def test_a_tenants_bytes_are_bounded_too() -> None:
    spec = ClassSpec("all", tenant_queue_bytes=50)
    play = Playbook(Settings(classes=(spec,)), backend(limit=1))
    play.arrive(0.0, "x")
    assert play.arrive(0.0, "a1", tenant="a", body_bytes=40) is None
    (refused,) = play(0.0, Arrived(ticket("a2", tenant="a", body_bytes=11)))
    assert refused == Reject("a2", Reason.TENANT_QUEUE_FULL, 1.0, "all", "arrived:a2")
    assert play.arrive(0.0, "a3", tenant="a", body_bytes=10) is None


def test_tenants_that_have_caught_up_are_forgotten() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "t0", tenant="t0")
    for n in range(1, 1100):
        play.arrive(n, f"t{n}", tenant=f"t{n}")
        assert [c for c in play(n, Finished(f"t{n - 1}")) if isinstance(c, Dispatch)]


# --- placement ----------------------------------------------------------------------------------


def test_a_cached_prefix_draws_a_prompt_to_its_backend_until_waiting_costs_more() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("a"), backend("b"))
    assert play.arrive(0.0, "t1", 1000, prefix=tuple(range(10))) == "a"
    play(0.1, FirstToken("t1"))
    play.arrive(0.1, "other", 500)
    assert play.arrive(0.1, "t2", 1100, prefix=tuple(range(11))) == "a"
    play.arrive(0.1, "crowd", 3000, avoid=frozenset({"b"}))
    assert play.arrive(0.1, "t3", 1100, prefix=tuple(range(11))) == "b"


def test_a_prefix_is_computed_once_more_where_that_takes_little_longer_than_waiting() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("a"), backend("b"))
    prefix = tuple(range(10))
    assert play.arrive(0.0, "t1", 1000, prefix=prefix) == "a"
    play(0.1, FirstToken("t1"))
    play.arrive(0.1, "crowd", 700, avoid=frozenset({"b"}))
    assert play.arrive(0.1, "t2", 1000, prefix=prefix) == "b"
    play(0.2, FirstToken("t2"))
    assert play.arrive(0.2, "t3", 1000, prefix=prefix) == "b"


def test_a_prefix_is_forgotten_with_its_backend_with_time_and_with_space() -> None:
    spec = AffinitySpec(block_tokens=100, memory=10.0, blocks=20)
    settings = replace(ONE_CLASS, affinity=spec)
    prefix = tuple(range(10))

    def second(then: Callable[[Playbook], object], at: float = 5.0) -> str | None:
        play = Playbook(settings, backend("b"), backend("a"))
        play.arrive(0.0, "warm", 10)
        assert play.arrive(0.0, "t1", 1000, prefix=prefix) == "b"
        for name, took in (("warm", 0.001), ("t1", 0.1)):
            play(took, FirstToken(name))
            play(took, Finished(name))
        then(play)
        return play.arrive(at, "t2", 1000, prefix=prefix)

    def restart(play: Playbook) -> None:
        play(1.0, BackendChanged(backend("b", BackendState.DOWN)))
        play(1.0, BackendChanged(backend("b")))

    def crowd(play: Playbook) -> None:
        play.arrive(1.0, "big", 2000, prefix=tuple(range(100, 120)), avoid=frozenset({"a"}))
        play(1.2, FirstToken("big"))
        play(1.2, Finished("big"))

    def nothing(play: Playbook) -> None:
        play(1.0, Woke())

    assert second(nothing) == "b"
    assert [second(restart), second(crowd), second(nothing, at=15.0)] == ["a", "a", "a"]


def test_a_prefix_is_forgotten_when_its_engine_has_stored_a_caches_worth_since() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("b", kv_tokens=3000), backend("a", kv_tokens=3000))
    prefix = tuple(range(10))

    def send(at: float, name: str, took: float = 0.1, **fields: object) -> str | None:
        sent_to = play.arrive(at, name, 1000, **fields)
        play(at + took, FirstToken(name))
        play(at + took, Finished(name))
        return sent_to

    assert send(0.0, "t1", prefix=prefix, avoid=frozenset({"a"})) == "b"
    for n in range(3):
        send(1.0 + n, f"other{n}", prefix=(1000 + n,), avoid=frozenset({"a"}))
    assert send(5.0, "t2", took=0.001, prefix=prefix) == "b"
    send(6.0, "one more", prefix=(2000,), avoid=frozenset({"a"}))
    for n in range(3):
        send(7.0 + n, f"last{n}", prefix=(3000 + n,), avoid=frozenset({"a"}))
    assert send(11.0, "t3", prefix=prefix) == "a"


def test_without_blocks_no_prefix_is_remembered() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100, blocks=0))
    play = Playbook(settings, backend("a"), backend("b"))
    prefix = tuple(range(10))
    assert play.arrive(0.0, "t1", 1000, prefix=prefix, avoid=frozenset({"a"})) == "b"
    play(0.1, FirstToken("t1"))
    play(0.1, Finished("t1"))
    assert play.arrive(0.2, "t2", 1000, prefix=prefix) == "a"


def test_a_restarted_backend_keeps_no_sessions() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(session=True))
    play = Playbook(settings, backend("a"), backend("b"))
    for name in ("t1", "t2"):
        assert play.arrive(0.0, name, 300, session=name, avoid=frozenset({"a"})) == "b"
        play(0.1, FirstToken(name))
        play(0.1, Finished(name))
    play(1.0, BackendChanged(backend("b", BackendState.DOWN)))
    play(1.0, BackendChanged(backend("b")))
    assert play.arrive(2.0, "t3", 300, session="t1") == "a"


def test_a_tenants_weight_must_be_positive() -> None:
    with pytest.raises(ValueError, match="weight"):
        replace(ONE_CLASS, tenants=(TenantSpec("t", 0.0),))


def test_new_affinity_settings_start_from_an_empty_map() -> None:
    spec = AffinitySpec(session=True)
    play = Playbook(replace(ONE_CLASS, affinity=spec), backend("a"), backend("b"))
    assert play.arrive(0.0, "t1", 300, session="s", avoid=frozenset({"a"})) == "b"
    play(0.1, FirstToken("t1"))
    play(0.1, Finished("t1"))
    newer = replace(spec, memory=9.0)
    play(1.0, SettingsChanged(replace(ONE_CLASS, affinity=newer)))
    assert play.arrive(2.0, "t2", 300, session="s") == "a"


def test_a_session_stays_where_it_was() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(session=True, blocks=1))
    play = Playbook(settings, backend("a"), backend("b"))
    play.arrive(0.0, "busy", 400)
    assert play.arrive(0.0, "t1", 300, session="s") == "b"
    for name in ("busy", "t1"):
        play(0.1, FirstToken(name))
        play(0.1, Finished(name))
    assert play.arrive(1.0, "t2", 300, session="s") == "b"
    play.arrive(1.0, "t3", 300, session="other")
    play(2.0, BackendRemoved("b"))
    assert play.arrive(3.0, "t4", 300, session="s") == "a"


def test_classes_may_count_uncached_tokens_only() -> None:
    settings = replace(TWO_CLASSES, class_by_uncached=True, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, backend("a"))
    first = play(0.0, Arrived(ticket("t1", 3000, prefix=tuple(range(30)))))
    play(0.3, FirstToken("t1"))
    second = play(0.4, Arrived(ticket("t2", 3200, prefix=tuple(range(30)))))
    assert [c.service_class for c in (*first, *second) if isinstance(c, Dispatch)] == [
        "long",
        "short",
    ]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement.ROUND_ROBIN, ["b", "c", "a", "b"]),
        (Placement.LEAST_REQUESTS, ["a", "b", "c", "a"]),
        (Placement.LEAST_TOKENS, ["a", "b", "c", "b"]),
    ],
)
def test_the_comparison_policies(placement: Placement, expected: list[str]) -> None:
    settings = replace(ONE_CLASS, placement=placement)
    play = Playbook(settings, *(backend(name) for name in "abc"))
    sizes = [500, 100, 300, 100]
    assert [play.arrive(0.0, f"t{n}", size) for n, size in enumerate(sizes)] == expected


def test_power_of_two_takes_the_less_loaded_of_two() -> None:
    settings = replace(ONE_CLASS, placement=Placement.POWER_OF_TWO)
    play = Playbook(settings, *(backend(name) for name in "abcd"))
    for n in range(40):
        play.arrive(0.0, f"t{n}", 1)
    loads = [seen.in_flight for seen in play.s.snapshot().backends]
    assert sum(loads) == 40
    assert max(loads) <= 14


def test_a_big_pool_is_looked_at_in_part_but_searched_when_that_part_is_full() -> None:
    names = [f"b{n:02}" for n in range(60)]
    play = Playbook(ONE_CLASS, *(backend(name, limit=1) for name in names))
    assert {play.arrive(0.0, f"t{n}") for n in range(60)} == set(names)
    assert play.arrive(0.0, "one more") is None


def test_in_a_big_pool_a_cached_prefix_is_found_outside_the_part_looked_at() -> None:
    settings = replace(ONE_CLASS, affinity=AffinitySpec(block_tokens=100))
    play = Playbook(settings, *(backend(f"b{n:02}") for n in range(60)))
    prefix = tuple(range(10))
    home = play.arrive(0.0, "t0", 1000, prefix=prefix)
    play(0.1, FirstToken("t0"))
    for n in range(1, 20):
        assert play.arrive(n, f"t{n}", 1000, prefix=prefix) == home
        play(n + 0.01, FirstToken(f"t{n}"))


# --- estimates ----------------------------------------------------------------------------------


def test_prefill_cost_is_learned_as_a_base_and_a_price_per_token() -> None:
    cost = PrefillCost(10_000.0)
    for n in range(200):
        tokens = 100 if n % 2 else 4000
        cost.add(tokens, 0.02 + tokens / 5000.0, float(n))
    assert cost.base == pytest.approx(0.02, rel=0.2)
    assert cost.per_token == pytest.approx(1 / 5000.0, rel=0.05)


def test_prompts_of_one_length_teach_the_base_and_leave_the_seed_in_force() -> None:
    cost = PrefillCost(10_000.0)
    for n in range(50):
        cost.add(100, 0.05, float(n))
    assert cost.per_token == pytest.approx(1e-4)
    assert cost.base == pytest.approx(0.04, rel=0.01)


def test_first_tokens_of_one_engine_step_are_one_sample() -> None:
    cost = PrefillCost(1000.0)
    for n in range(100):
        for _ in range(10):
            cost.add(100, 0.01 if _ == 0 else 0.0, float(n))
    assert cost.seconds(1000) == pytest.approx(0.01, rel=0.1)


def test_a_cost_that_looks_like_nothing_is_not_believed() -> None:
    cost = PrefillCost(1000.0)
    for n in range(10):
        cost.add(1000, 0.0, float(n))
    assert cost.per_token == pytest.approx(1e-5)


def test_a_meter_forgets() -> None:
    meter = Meter(10.0)
    for n in range(100):
        meter.add(5.0, float(n))
    assert meter.rate(99.5) == pytest.approx(5.0, rel=0.1)
    assert meter.rate(200.0) < 0.01
    assert Meter().rate(0.0) == 0.0


def test_the_time_between_tokens_is_learned_from_one_report_at_the_end() -> None:
    play = Playbook(ONE_CLASS, backend("a"))
    assert play.s.snapshot().backends[0].itl == 0.0
    for n in range(3):
        play.arrive(n, f"t{n}", 100)
        play(n, Progress(f"t{n}", 7))
        play(n + 0.1, FirstToken(f"t{n}"))
        play(n + 0.5, Progress(f"t{n}", 21))
        play(n + 0.5, Progress(f"t{n}", 21))
        play(n + 0.5, Finished(f"t{n}"))
        play(n + 0.6, Progress(f"t{n}", 41))
    assert play.s.snapshot().backends[0].itl == pytest.approx(0.02)
    play.arrive(300.0, "later", 100)
    play(300.0, FirstToken("later"))
    play(302.0, Progress("later", 21))
    play(304.0, Progress("later", 41))
    assert play.s.snapshot().backends[0].itl == pytest.approx(0.1, rel=0.05)


def test_a_probe_that_measures_anew_restarts_the_estimate() -> None:
    play = Playbook(ONE_CLASS, backend("a", prefill_rate=1000.0))
    for n in range(10):
        play.arrive(n, f"t{n}", 1000)
        play(n + 0.1, FirstToken(f"t{n}"))
    assert play.s.snapshot().backends[0].prefill_rate > 3000
    play(20.0, BackendChanged(backend("a", prefill_rate=2000.0)))
    assert play.s.snapshot().backends[0].prefill_rate == pytest.approx(2000.0)


def _load(kv: float = 0.0, preemptions: int = 0, backend: str = "a") -> LoadSeen:
    return LoadSeen(backend, running=0, waiting=0, kv_usage=kv, preemptions=preemptions)
