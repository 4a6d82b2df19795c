"""A backend all of whose slots are other gateways' is full: its tickets wait for it."""

from scheduler.events import BackendChanged, Dispatch, Finished
from tests.scheduler.playbook import TWO_CLASSES, Playbook, backend

NONE = backend("s", classes=frozenset({"short"}), limit=0)
SOME = backend("s", classes=frozenset({"short"}), limit=1)
LONG = backend("l", classes=frozenset({"long"}))


def test_a_ticket_waits_for_the_slot_of_its_class_and_goes_nowhere_else() -> None:
    play = Playbook(TWO_CLASSES, NONE, LONG)
    assert play.arrive(1.0, "a") is None
    assert [view.limit for view in play.s.snapshot().backends] == [0, 64]
    assert play(2.0, BackendChanged(SOME)) == [Dispatch("a", "s", "short", "backend_changed:s")]


def test_what_is_in_flight_goes_on_when_the_last_slot_is_given_up() -> None:
    play = Playbook(TWO_CLASSES, SOME, LONG)
    assert play.arrive(1.0, "a") == "s"
    play(2.0, BackendChanged(NONE))
    assert play.arrive(3.0, "b") is None
    assert play(4.0, Finished("a")) == []
    assert play(5.0, BackendChanged(SOME)) == [Dispatch("b", "s", "short", "backend_changed:s")]
