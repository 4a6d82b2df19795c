"""Playbooks for the decisions that a reader would ask about."""

from dataclasses import replace

import pytest

from scheduler.events import (
    Abandoned,
    Arrived,
    BackendChanged,
    BackendRemoved,
    Cancel,
    Command,
    Decided,
    Dispatch,
    Drain,
    Failed,
    Finished,
    FirstToken,
    LoadSeen,
    Progress,
    Reason,
    Reject,
    SettingsChanged,
    WakeAt,
    Woke,
)
from scheduler.model import BackendState, BurstSpec, ClassSpec, Settings
from tests.scheduler.playbook import (
    LONG,
    ONE_CLASS,
    SHORT,
    TWO_CLASSES,
    Playbook,
    backend,
    ticket,
)


def test_a_ticket_goes_to_the_pool_of_its_exact_token_count() -> None:
    play = Playbook(
        TWO_CLASSES,
        backend("s", classes=frozenset({"short"})),
        backend("l", classes=frozenset({"long"})),
    )
    assert play(1.0, Arrived(ticket("a", 1000))) == [Dispatch("a", "s", "short", "arrived:a")]
    assert play(1.0, Arrived(ticket("b", 1001))) == [Dispatch("b", "l", "long", "arrived:b")]


def test_the_next_ticket_goes_when_a_stream_ends() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    assert play.arrive(0.0, "a") == "b"
    assert play.arrive(0.0, "c") is None
    assert play(0.5, FirstToken("a")) == []
    assert play(0.6, Progress("a", 3)) == []
    assert play(1.0, Finished("a")) == [Dispatch("c", "b", "all", "finished:a")]


@pytest.mark.parametrize("end", [Finished, Failed, Abandoned])
def test_whatever_ends_a_stream_frees_its_slot_once(end: type) -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    play.arrive(0.0, "c")
    play.arrive(0.0, "d")
    assert play(1.0, end("a")) == [Dispatch("c", "b", "all", f"{end.__name__.lower()}:a")]
    assert play(1.0, Finished("a")) == []
    assert play(1.0, Failed("never seen")) == []


def test_an_id_that_is_still_live_does_not_arrive_twice() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    assert play(0.0, Arrived(ticket("a"))) == []
    play.arrive(0.0, "c")
    assert play(0.0, Arrived(ticket("c"))) == []
    assert "1 queued 1/1 in flight" in repr(play.s)


def test_a_client_that_leaves_the_queue_is_forgotten() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    play.arrive(0.0, "c")
    assert play(0.5, Abandoned("c")) == []
    assert play(1.0, Finished("a")) == []


def test_the_class_limit_bounds_the_whole_pool() -> None:
    settings = Settings(classes=(replace(SHORT, limit=1), LONG))
    play = Playbook(settings, backend("a"), backend("b"))
    assert play.arrive(0.0, "t1") == "a"
    assert play.arrive(0.0, "t2") is None
    assert play.arrive(0.0, "t3", 5000) == "b"


def test_long_prompts_leave_slots_of_a_shared_backend_to_short_ones() -> None:
    play = Playbook(TWO_CLASSES, backend(limit=4))
    sent = [_prefilled(play, i, f"l{i}", 1500) for i in range(4)]
    assert sent == ["b", "b", "b", None]
    assert play.arrive(5.0, "s0") == "b"


def test_short_prompts_go_first_when_a_shared_slot_comes_free() -> None:
    play = Playbook(TWO_CLASSES, backend(limit=1))
    play.arrive(0.0, "a", 5000)
    play.arrive(0.1, "long", 5000)
    play.arrive(0.2, "short", 10)
    assert play(1.0, Finished("a")) == [Dispatch("short", "b", "short", "finished:a")]


def test_a_missing_pool_degrades_to_the_backends_that_exist() -> None:
    play = Playbook(TWO_CLASSES, backend("l", classes=frozenset({"long"})))
    assert play.arrive(0.0, "t") == "l"


def test_backends_that_failed_a_request_are_avoided_while_others_remain() -> None:
    play = Playbook(
        TWO_CLASSES,
        backend("s", classes=frozenset({"short"})),
        backend("l", classes=frozenset({"long"})),
    )
    assert play.arrive(0.0, "t1", avoid=frozenset({"s"})) == "l"
    assert play.arrive(0.0, "t2", avoid=frozenset({"s", "l"})) == "s"


def test_a_retry_waits_for_another_backend_and_blocks_nobody() -> None:
    play = Playbook(ONE_CLASS, backend("a"), backend("b", limit=1))
    assert play.arrive(0.0, "t0", avoid=frozenset({"a"})) == "b"
    assert play.arrive(0.0, "retry", avoid=frozenset({"a"})) is None
    assert play.arrive(0.0, "t2") == "a"
    assert play(1.0, Finished("t0")) == [Dispatch("retry", "b", "all", "finished:t0")]


def test_weight_zero_takes_no_new_tickets_and_keeps_its_streams() -> None:
    play = Playbook(ONE_CLASS, backend("a"))
    play.arrive(0.0, "t1")
    play(1.0, BackendChanged(backend("a", weight=0.0)))
    assert play.arrive(1.0, "t2") is None
    assert play(2.0, BackendChanged(backend("a"))) == [
        Dispatch("t2", "a", "all", "backend_changed:a")
    ]


def test_the_backend_with_the_least_backlog_is_taken_and_ties_go_by_name() -> None:
    play = Playbook(ONE_CLASS, backend("b"), backend("a"))
    assert play.arrive(0.0, "t1", 500) == "a"
    assert play.arrive(0.0, "t2", 300) == "b"
    assert play.arrive(0.0, "t3", 10) == "b"
    play(0.1, FirstToken("t1"))
    assert play.arrive(0.1, "t4", 10) == "a"


def test_tenants_take_turns_by_tokens_and_within_a_tenant_age_decides() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "x", 1, tenant="other")
    for name, tenant, tokens in [
        ("a1", "a", 300),
        ("a2", "a", 300),
        ("a3", "a", 300),
        ("b1", "b", 100),
        ("b2", "b", 100),
        ("b3", "b", 100),
    ]:
        play.arrive(0.1, name, tokens, tenant=tenant)
    assert _drain_order(play, "x") == ["a1", "b1", "b2", "b3", "a2", "a3"]


def test_priority_is_a_head_start_that_age_makes_up_for() -> None:
    play = Playbook(replace(ONE_CLASS, ageing=10.0), backend(limit=1))
    play.arrive(0.0, "x")
    play.arrive(0.0, "plain")
    play.arrive(9.0, "urgent", priority=1)
    play.arrive(11.0, "late", priority=1)
    assert _drain_order(play, "x", at=12.0) == ["urgent", "plain", "late"]


def test_a_ticket_expires_exactly_at_its_deadline() -> None:
    play = Playbook(replace(ONE_CLASS, queue_wait=60.0), backend(limit=1))
    play.arrive(0.0, "a")
    play.arrive(1.0, "default")
    play.arrive(1.0, "own", deadline=5.0)
    assert play.s.next_wakeup() == 5.0
    assert play(4.999, Woke()) == []
    assert _rejected(play(5.0, Woke())) == {"own": Reason.EXPIRED}
    assert play.s.next_wakeup() == 61.0
    assert _rejected(play(61.0, Finished("a"))) == {"default": Reason.EXPIRED}
    assert play.s.next_wakeup() is None


def test_a_deadline_in_the_past_is_not_served_even_by_an_idle_backend() -> None:
    play = Playbook(ONE_CLASS, backend())
    assert play.arrive(5.0, "t", deadline=5.0) == f"rejected: {Reason.EXPIRED}"


def test_wakeups_are_asked_for_once_and_only_when_they_come_sooner() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    first = play.s.handle(Arrived(ticket("q1", deadline=10.0)), 0.0)
    later = play.s.handle(Arrived(ticket("q2", deadline=20.0)), 0.0)
    sooner = play.s.handle(Arrived(ticket("q3", deadline=5.0)), 0.0)
    assert (first, later, sooner) == ([WakeAt(10.0, "arrived:q1")], [], [WakeAt(5.0, "arrived:q3")])
    assert play.s.handle(Woke(), 5.0)[-1] == WakeAt(10.0, "woke")


def test_a_full_queue_refuses_the_newcomer_and_says_when_to_come_back() -> None:
    settings = Settings(classes=(ClassSpec("all", queue_limit=2),))
    play = Playbook(settings, backend(limit=1, prefill_rate=100.0))
    for name in ("a", "q1", "q2"):
        play.arrive(0.0, name, 500)
    assert play(0.0, Arrived(ticket("q3", 500))) == [
        Reject("q3", Reason.QUEUE_FULL, 10.0, "all", "arrived:q3")
    ]


def test_retry_after_is_capped() -> None:
    settings = Settings(classes=(ClassSpec("all", queue_limit=1),))
    play = Playbook(settings, backend(limit=1, prefill_rate=1.0))
    play.arrive(0.0, "a")
    play.arrive(0.0, "q1", 50_000)
    (reject,) = play(0.0, Arrived(ticket("q2")))
    assert isinstance(reject, Reject)
    assert reject.retry_after == 120.0


def test_where_nothing_has_been_served_and_nothing_is_ready_retry_after_is_a_probe_away() -> None:
    settings = Settings(classes=(ClassSpec("all", queue_limit=1),))
    play = Playbook(settings, backend("b", BackendState.WARMING))
    play.arrive(0.0, "q1")
    assert play(0.0, Arrived(ticket("q2"))) == [
        Reject("q2", Reason.QUEUE_FULL, 5.0, "all", "arrived:q2")
    ]


def test_without_any_backend_the_answer_comes_at_once() -> None:
    play = Playbook(ONE_CLASS)
    assert play.arrive(0.0, "t") == f"rejected: {Reason.NO_BACKEND}"


def test_a_model_that_nobody_serves_is_unknown() -> None:
    play = Playbook(ONE_CLASS, backend(), backend("c", BackendState.DOWN))
    assert play.arrive(0.0, "t", model="other") == f"rejected: {Reason.UNKNOWN_MODEL}"


def test_a_backend_that_has_not_said_what_it_serves_may_serve_anything() -> None:
    play = Playbook(ONE_CLASS, backend("b", BackendState.DOWN, models=frozenset()))
    assert play.arrive(0.0, "t") == f"rejected: {Reason.NO_BACKEND}"
    play(1.0, BackendChanged(backend("b", BackendState.WARMING, models=frozenset())))
    assert play.arrive(1.0, "t") is None


def test_tickets_wait_for_a_warming_backend() -> None:
    play = Playbook(ONE_CLASS, backend("b", BackendState.WARMING))
    assert play.arrive(0.0, "t") is None
    assert play(1.0, BackendChanged(backend("b"))) == [
        Dispatch("t", "b", "all", "backend_changed:b")
    ]


def test_when_everything_is_down_newcomers_and_the_queue_are_refused_at_once() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    play.arrive(0.0, "q")
    assert play(1.0, BackendChanged(backend(state=BackendState.DOWN))) == [
        Reject("q", Reason.NO_BACKEND, 5.0, "all", "backend_changed:b")
    ]
    assert play.arrive(1.0, "t") == f"rejected: {Reason.NO_BACKEND}"


def test_removing_a_backend_lets_its_streams_end_unless_told_otherwise() -> None:
    play = Playbook(ONE_CLASS, backend("a"), backend("b"))
    assert play.arrive(0.0, "t1") == "a"
    assert play(1.0, BackendRemoved("a")) == []
    assert play.arrive(1.0, "t2") == "b"
    assert "a: ready 1/64" in repr(play.s)
    assert play(2.0, Finished("t1")) == []
    assert "a: ready" not in repr(play.s)
    assert play(3.0, BackendRemoved("b", cancel=True)) == [Cancel("t2", "backend_removed:b")]
    assert play(3.1, Abandoned("t2")) == []
    assert play(4.0, BackendRemoved("b")) == []


def test_a_removed_backend_may_come_back_with_its_streams() -> None:
    play = Playbook(ONE_CLASS, backend("a", limit=1))
    play.arrive(0.0, "t1")
    play(1.0, BackendRemoved("a"))
    play(1.0, BackendChanged(backend("a", limit=1)))
    assert play.arrive(1.0, "t2") is None
    assert play(2.0, Finished("t1")) == [Dispatch("t2", "a", "all", "finished:t1")]


def test_draining_refuses_the_queue_and_newcomers_and_lets_streams_end() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a")
    play.arrive(0.0, "q")
    assert play(1.0, Drain()) == [Reject("q", Reason.DRAINING, 5.0, "all", "drain")]
    assert play.arrive(1.0, "t") == f"rejected: {Reason.DRAINING}"
    assert play(2.0, Finished("a")) == []
    assert play.s.next_wakeup() is None
    assert repr(play.s) == ("<Scheduler draining [all: 0 queued 0/1 in flight] [b: ready 0/1]>")


def test_new_settings_reclass_the_queue_and_keep_order_and_deadlines() -> None:
    play = Playbook(ONE_CLASS, backend(limit=1))
    play.arrive(0.0, "a", 10)
    play.arrive(0.0, "q1", 5000)
    play.arrive(0.1, "q2", 10)
    play.arrive(0.2, "q3", 10)
    assert play(1.0, SettingsChanged(TWO_CLASSES)) == []
    assert _drain_order(play, "a") == ["q2", "q3", "q1"]


def test_settings_that_leave_a_prompt_without_a_class_are_refused() -> None:
    for classes, why in [
        ((), "any length"),
        ((SHORT,), "any length"),
        ((LONG, replace(LONG, name="x")), "any length"),
        ((SHORT, SHORT, LONG), "one name"),
        ((SHORT, replace(SHORT, name="x"), LONG), "one bound"),
    ]:
        with pytest.raises(ValueError, match=why):
            Settings(classes=classes)


def test_a_burst_halves_the_pools_limit_once_per_window_and_it_recovers_in_steps() -> None:
    burst = BurstSpec(window=1.0, clean_interval=2.0, recovery_step=0.25)
    play = Playbook(
        Settings(classes=(SHORT, LONG), burst=burst),
        backend(limit=8, classes=_LONG, prefill_rate=100.0),
    )
    assert play.arrive(0.0, "l0", 3000) == "b"
    why = "burst: a prompt of 3000 tokens, 1 in prefill per backend"
    assert play(0.1, Arrived(ticket("l1", 3000))) == [Decided("long", why, 8, 4, "arrived:l1")]
    assert play(0.5, Arrived(ticket("l2", 3000))) == []
    assert play(1.1, Arrived(ticket("l3", 3000))) == [Decided("long", why, 4, 2, "arrived:l3")]
    assert play(2.1, Arrived(ticket("l4", 3000))) == [Decided("long", why, 2, 1, "arrived:l4")]
    assert play(3.2, Arrived(ticket("l5", 3000))) == []
    assert play.s.next_wakeup() == 5.2
    assert play(5.2, Woke()) == [Decided("long", "limit recovers", 1, 3, "woke")]
    assert play(20.0, Woke()) == [Decided("long", "limit recovers", 3, 8, "woke")]


def test_short_prompts_never_count_as_a_burst() -> None:
    play = Playbook(ONE_CLASS, backend(limit=8))
    for i in range(8):
        assert _prefilled(play, i, f"t{i}", 2048) == "b"


def test_the_snapshot_shows_what_metrics_need() -> None:
    play = Playbook(TWO_CLASSES, backend(limit=4))
    play.arrive(0.0, "l0", 3000)
    play.arrive(0.0, "l1", 3000)
    play.arrive(0.0, "s0", 70)
    play(0.1, FirstToken("l0"))
    play(0.1, LoadSeen("b", running=2, waiting=0, kv_usage=0.1, preemptions=0))
    seen = play.s.snapshot()
    by_class = {view.service_class: view for view in seen.pools}
    assert (by_class["short"].queued, by_class["short"].in_flight) == (0, 1)
    assert (by_class["long"].queued, by_class["long"].queued_tokens) == (1, 3000)
    assert (by_class["long"].limit_configured, by_class["long"].limit_effective) == (3, 1)
    (only,) = seen.backends
    assert (only.name, only.in_flight, only.limit, only.prefill_backlog) == ("b", 2, 4, 70)
    assert not seen.draining


_LONG = frozenset({"long"})


def _rejected(commands: list[Command]) -> dict[str, Reason]:
    return {c.ticket_id: c.reason for c in commands if isinstance(c, Reject)}


def _prefilled(play: Playbook, now: float, name: str, tokens: int) -> str | None:
    """Like `arrive`, and where the ticket was sent its first token comes at once."""
    sent_to = play.arrive(now, name, tokens)
    if sent_to is not None:
        play(now, FirstToken(name))
    return sent_to


def _drain_order(play: Playbook, running: str, at: float = 1.0) -> list[str]:
    """End streams one by one and note who gets the only slot."""
    order: list[str] = []
    while commands := play(at, Finished(running)):
        running = next(c.ticket_id for c in commands if isinstance(c, Dispatch))
        order.append(running)
    return order
