"""What the measurement of decisions measures: a queue that stays long, and requests one by one."""

from itertools import count

from bench.decisions import FullHouse, decisions_per_second, idle_microseconds


def test_each_turn_sends_one_ticket_on_and_the_queue_keeps_its_length() -> None:
    house = FullHouse(500)
    house.prepare(300)
    before = house.dispatched
    for _ in range(300):
        house.turn()
    assert house.dispatched - before == 300
    assert house.queued == 500


def test_a_rate_is_turns_over_the_time_that_the_clock_counts() -> None:
    ticks = map(float, count())
    assert decisions_per_second(FullHouse(50), 2.0, lambda: next(ticks)) == 1000.0


def test_an_idle_schedulers_cost_is_the_time_over_the_requests() -> None:
    ticks = map(float, count())
    assert idle_microseconds(1000, lambda: next(ticks)) == 1000.0
