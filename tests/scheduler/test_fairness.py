"""Fairness and starvation as properties: the bounds that the order of service promises.

One backend with one slot, so that the order in which streams end cannot matter. What overtakes
what is then the queues' decision alone.
"""

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from scheduler.events import Arrived, Command, Dispatch, Finished
from scheduler.model import BurstSpec, ClassSpec, Settings, TenantSpec, Ticket
from tests.scheduler.playbook import Playbook, backend, ticket

AGEING = 2.0
_NO_BURST = BurstSpec(in_flight=None)
_quick = hypothesis_settings(max_examples=80, deadline=None)


@dataclass(frozen=True, slots=True)
class Came:
    """A ticket, when it came and when it was sent on."""

    ticket: Ticket
    at: float
    served: float = 0.0


class OneSlot:
    """A busy backend: each stream lasts a second, then whoever's turn it is gets the slot."""

    def __init__(self, settings: Settings) -> None:
        self._play = Playbook(settings, backend(limit=1))
        self._came: dict[str, Came] = {}
        self._running = ""
        self.order: list[Came] = []
        self.arrive(ticket("first", tenant="nobody"), 0.0)

    def arrive(self, each: Ticket, at: float) -> None:
        self._came[each.id] = Came(each, at)
        self._note(self._play(at, Arrived(each)), at)

    def end(self, at: float) -> bool:
        """End the running stream; False when nobody waited for its slot."""
        running, self._running = self._running, ""
        self._note(self._play(at, Finished(running)), at)
        return bool(self._running)

    def _note(self, commands: list[Command], at: float) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                came = self._came[command.ticket_id]
                self._running = command.ticket_id
                self.order.append(Came(came.ticket, came.at, at))


@_quick
@given(
    weights=st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=4),
    sizes=st.lists(st.integers(1, 3000), min_size=8, max_size=12),
)
def test_what_waiting_tenants_got_differs_by_at_most_one_largest_prompt_each(
    weights: list[float], sizes: list[int]
) -> None:
    tenants = {f"t{n}": weight for n, weight in enumerate(weights)}
    specs = tuple(TenantSpec(name, weight) for name, weight in tenants.items())
    settings = Settings(classes=(ClassSpec("all"),), tenants=specs, burst=_NO_BURST)
    slot = OneSlot(settings)
    for name in tenants:
        for n, size in enumerate(sizes):
            slot.arrive(ticket(f"{name}.{n}", size, tenant=name), 0.0)
    got, left = dict.fromkeys(tenants, 0.0), dict.fromkeys(tenants, len(sizes))
    largest = {name: max(sizes) / weight for name, weight in tenants.items()}
    at = 1.0
    while all(left.values()):
        assert slot.end(at)
        served = slot.order[-1].ticket
        got[served.tenant] += served.prompt_tokens / tenants[served.tenant]
        left[served.tenant] -= 1
        at += 1.0
        for one in tenants:
            for other in tenants:
                assert got[one] - got[other] <= largest[one] + largest[other] + 1e-6


def _arrivals(kind: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[float, int]]]:
    return st.lists(st.tuples(st.floats(0.0, 1.2), kind), min_size=2, max_size=40)


def _served(settings: Settings, tickets: list[tuple[float, Ticket]]) -> list[Came]:
    """The order of service when each stream lasts one second."""
    slot, now, ends = OneSlot(settings), 0.0, 1.0
    for gap, each in tickets:
        now += gap
        while ends <= now and slot.end(ends):
            ends += 1.0
        slot.arrive(each, now)
        ends = max(ends, now)
    while slot.end(ends + 1.0):
        ends += 1.0
    return slot.order[1:]


@_quick
@given(arrivals=_arrivals(st.integers(-1, 2)))
@example(arrivals=[(0.0, 0), (0.0, 0), *[(0.5, 2)] * 20])
def test_a_priority_overtakes_only_what_came_at_most_its_head_start_before_it(
    arrivals: list[tuple[float, int]],
) -> None:
    settings = Settings(
        classes=(ClassSpec("all"),), ageing=AGEING, queue_wait=1000.0, burst=_NO_BURST
    )
    tickets = [(gap, ticket(f"t{n}", priority=p)) for n, (gap, p) in enumerate(arrivals)]
    order = _served(settings, tickets)
    assert len(order) == len(arrivals)
    for index, late in enumerate(order):
        for early in order[:index]:
            head_start = (early.ticket.priority - late.ticket.priority) * AGEING
            waited = early.served >= late.at
            assert not waited or early.at <= late.at + max(head_start, 0.0) + 1e-6


@_quick
@given(arrivals=_arrivals(st.sampled_from([100, 100, 100, 8000])))
@example(arrivals=[(0.0, 100), (0.0, 8000), *[(0.5, 100)] * 20])
def test_short_prompts_overtake_a_long_one_for_a_bounded_time_only(
    arrivals: list[tuple[float, int]],
) -> None:
    """Those that came up to `ageing` after it, or after its class was last served."""
    settings = Settings(
        classes=(ClassSpec("short", 1000), ClassSpec("long")),
        ageing=AGEING,
        queue_wait=1000.0,
        burst=_NO_BURST,
    )
    tickets = [(gap, ticket(f"t{n}", size)) for n, (gap, size) in enumerate(arrivals)]
    order = _served(settings, tickets)
    assert len(order) == len(arrivals)
    last_long = 0.0
    for index, each in enumerate(order):
        if each.ticket.prompt_tokens < 1000:
            continue
        bound = max(each.at, last_long) + AGEING
        overtakers = [o for o in order[:index] if each.at <= o.served]
        assert all(o.at <= bound + 1e-6 for o in overtakers if o.ticket.prompt_tokens < 1000)
        last_long = each.served
