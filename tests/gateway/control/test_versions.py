"""Versions as arithmetic: diffs lead forth and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control.overlay import Document, digest
from gateway.control.versions import Change, Entry, back_to, changed, difference, entry_of

KEYS = st.sampled_from(["forebay:class:short", "forebay:burst", "forebay:tenant:acme"])
HASHES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "ü"]), min_size=1)
STATES = st.dictionaries(KEYS, HASHES)


def entries(states: list[Document]) -> list[Entry]:
    """The history of these states, newest first; version 0 is the empty one."""
    steps = zip([{}, *states], states, strict=False)
    made = [Entry(n, "", "", "", difference(a, b)) for n, (a, b) in enumerate(steps, 1)]
    return made[::-1]


@given(st.lists(STATES, min_size=1, max_size=6))
def test_every_state_is_found_again(states: list[Document]) -> None:
    history = entries(states)
    for number, state in enumerate([{}, *states]):
        assert back_to(number, states[-1], history) == state


def test_a_history_that_was_cut_reaches_only_so_far_back() -> None:
    states: list[Document] = [{"forebay:burst": {"a": str(n)}} for n in range(5)]
    history = entries(states)[:2]
    assert back_to(3, states[-1], history) == states[2]
    with pytest.raises(ValueError, match="does not reach back to version 2"):
        back_to(2, states[-1], history)


@given(STATES, STATES)
def test_a_difference_makes_the_one_of_the_other(before: Document, after: Document) -> None:
    made = changed(before, difference(before, after))
    assert made == after
    assert digest(made) == digest(after)
    assert (digest(before) == digest(after)) is (before == after)


def test_a_digest_knows_where_names_end() -> None:
    assert digest({"k": {"a": "b"}}) != digest({"ka": {"": "b"}})
    assert digest({"k": {"ab": "c"}}) != digest({"k": {"a": "bc"}})
    assert digest({"k": None}) != digest({"k": {"a": "b"}})
    assert digest({"k": {}}) == digest({})


@pytest.mark.parametrize("fields", [{}, {"version": "x"}, {"version": "1", "diff": "[[1]]"}])
def test_what_others_put_into_the_history_is_shown_as_it_is(fields: dict[str, str]) -> None:
    entry = entry_of(fields)
    assert entry.version == 0
    assert "not ours" in entry.note


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = entry_of({"version": "3", "by": "ann", "diff": '[["k","f",null,"1"]]'})
    assert (entry.version, entry.by) == (3, "ann")
    assert entry.changes == (Change("k", "f", None, "1"),)
