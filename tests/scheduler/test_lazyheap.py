"""The priority queue that forgets: order, leaving, and memory that follows what lives."""

from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from scheduler.lazyheap import LazyHeap


@dataclass(slots=True, eq=False)
class _Item:
    name: str
    gone: bool = False


def _leave(heap: LazyHeap[_Item], item: _Item) -> None:
    item.gone = True
    heap.left()


def _first(heap: LazyHeap[_Item]) -> tuple[float, str] | None:
    first = heap.first()
    return None if first is None else (first[0], first[2].name)


def test_first_is_the_smallest_key_then_the_earliest_pushed() -> None:
    heap: LazyHeap[_Item] = LazyHeap()
    a, b, c, d = map(_Item, "abcd")
    for item, key in [(a, 2.0), (b, 1.0), (c, 1.0), (d, 2.0)]:
        heap.push(item, key)
    order = []
    for item in (b, c, a, d):
        order.append(_first(heap))
        _leave(heap, item)
    assert order == [(1.0, "b"), (1.0, "c"), (2.0, "a"), (2.0, "d")]
    assert heap.first() is None
    assert heap.least() == inf
    assert len(heap) == 0


def test_a_push_says_when_it_is_certainly_not_the_first() -> None:
    heap: LazyHeap[_Item] = LazyHeap()
    a, b, c, d, e = map(_Item, "abcde")
    assert heap.push(a, 2.0)
    assert not heap.push(b, 3.0)
    assert heap.push(c, 1.0)
    assert not heap.push(d, 1.5)
    _leave(heap, c)
    assert heap.push(e, 1.2)


def test_what_is_due_is_the_first_that_lives_and_nothing_later() -> None:
    heap: LazyHeap[_Item] = LazyHeap()
    a, b = map(_Item, "ab")
    heap.push(a, 1.0)
    heap.push(b, 2.0)
    assert heap.due(0.9) is None
    assert heap.due(1.0) is a
    _leave(heap, a)
    assert heap.due(1.9) is None
    assert heap.due(2.0) is b


@pytest.mark.parametrize("in_order", [0.0, 0.9, 1.0], ids=["shuffled", "mostly", "in_order"])
def test_it_agrees_with_a_plain_list_while_most_of_it_leaves(in_order: float) -> None:
    random, heap, live = Random(0), LazyHeap[_Item](), list[tuple[float, int, _Item]]()
    for number in range(5000):
        key = float(number) if random.random() < in_order else random.random() * number
        item = _Item(str(number))
        heap.push(item, key)
        live.append((key, number, item))
        if len(live) > 50:
            _leave(heap, live.pop(random.randrange(len(live)))[2])
        if number % 3 == 0 and (first := heap.first()) is not None:
            live.remove(min(live))
            first[2].gone = True
            heap.take_first()
            if not live:
                assert heap.first() is None
                continue
        assert _first(heap) == (min(live)[0], min(live)[2].name)
    assert len(heap) == len(live)
    assert {item.name for item in heap} == {item.name for _, _, item in live}
    assert len(heap._line) + len(heap._heap) < 400
