"""The priority queue that forgets: order, removal, and memory that follows what lives."""

from random import Random

from scheduler.lazyheap import LazyHeap


def test_first_is_the_smallest_key_then_the_earliest_pushed() -> None:
    heap = LazyHeap()
    for item, key in [("a", 2.0), ("b", 1.0), ("c", 1.0)]:
        heap.push(item, key)
    assert heap.first() == (1.0, "b")
    heap.discard("b")
    heap.discard("never there")
    assert heap.first() == (1.0, "c")
    heap.discard("c")
    heap.discard("a")
    assert heap.first() is None
    assert len(heap) == 0


def test_an_id_that_comes_back_counts_with_its_new_key_only() -> None:
    heap = LazyHeap()
    heap.push("a", 1.0)
    heap.discard("a")
    heap.push("b", 2.0)
    heap.push("a", 3.0)
    assert heap.first() == (2.0, "b")


def test_it_agrees_with_a_plain_dictionary_while_most_of_it_is_removed() -> None:
    random, heap, model = Random(0), LazyHeap(), {}
    for number in range(5000):
        item = str(number)
        model[item] = random.random()
        heap.push(item, model[item])
        if len(model) > 50:
            gone = random.choice(tuple(model))
            del model[gone]
            heap.discard(gone)
        assert heap.first() == min((key, name) for name, key in model.items())
    assert len(heap) == len(model)
    assert len(heap._heap) < 400
