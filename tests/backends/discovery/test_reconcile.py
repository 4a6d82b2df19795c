"""What sources find joins the fleet, and what they find no more leaves it, drained."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from backends.discovery.reconcile import Reconciler
from backends.discovery.source import Found
from backends.types import BackendSpec
from tests.backends.scripted import start


@dataclass
class Members:
    """A fleet's membership: what was done with it, and removals that the test lets end."""

    done: list[str] = field(default_factory=list)
    leaving: dict[str, asyncio.Future[bool]] = field(default_factory=dict)

    def add(self, spec: BackendSpec) -> None:
        if "bad" in spec.url:
            raise ValueError(f"bad URL {spec.url}")
        self.done.append(f"add {spec.name} {spec.url}")

    def update(self, spec: BackendSpec) -> None:
        self.done.append(f"update {spec.name} {spec.limit}")

    def readmit(self, name: str) -> None:
        self.done.append(f"readmit {name}")
        self.leaving[name].set_result(False)

    async def remove(self, name: str, within: float) -> bool:
        self.done.append(f"remove {name} {within:g}")
        self.leaving[name] = asyncio.get_running_loop().create_future()
        return await self.leaving[name]

    async def left(self, name: str) -> None:
        self.leaving[name].set_result(True)
        await settle()


class Told:
    """A source that finds what the test says."""

    def __init__(self) -> None:
        self._found: Found | None = None

    async def follow(self, found: Found) -> None:
        self._found = found
        await asyncio.Event().wait()

    async def finds(self, *specs: BackendSpec) -> None:
        await settle()
        assert self._found is not None
        self._found(specs)
        await settle()


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def spec(name: str, host: str = "h", limit: int = 64) -> BackendSpec:
    return BackendSpec(name, f"http://{host}:1", limit=limit)


class Bench:
    def __init__(self, fixed: Sequence[str] = ()) -> None:
        self.members = Members()
        self.gone: list[str] = []
        self.reconciler = Reconciler(
            self.members,
            lambda _, coro: start(coro),
            within=30,
            on_removed=self.gone.append,
            fixed=fixed,
        )

    def source(self, name: str = "one") -> Told:
        told = Told()
        self.reconciler.follow(name, told)
        return told

    def happened(self) -> list[str]:
        done, self.members.done = self.members.done, []
        return done


async def test_found_joins_lost_leaves() -> None:
    bench = Bench()
    source = bench.source()
    await source.finds(spec("a"), spec("b"))
    assert bench.happened() == ["add a http://h:1", "add b http://h:1"]
    await source.finds(spec("b"))
    await source.finds(spec("b"))
    assert bench.happened() == ["remove a 30"]
    assert bench.gone == []
    await bench.members.left("a")
    assert bench.gone == ["a"]
    await source.finds(spec("a"), spec("b"))
    assert bench.happened() == ["add a http://h:1"]


async def test_who_is_found_again_while_leaving_is_taken_back() -> None:
    bench = Bench()
    source = bench.source()
    await source.finds(spec("a"))
    await source.finds()
    await source.finds(spec("a"))
    assert bench.happened() == ["add a http://h:1", "remove a 30", "readmit a"]
    assert bench.gone == []
    await source.finds()
    assert bench.happened() == ["remove a 30"]
    await bench.members.left("a")
    assert bench.gone == ["a"]


async def test_another_address_under_the_same_name_is_another_backend() -> None:
    bench = Bench()
    source = bench.source()
    await source.finds(spec("a"))
    await source.finds(spec("a", "new"))
    await source.finds(spec("a", "newer"))
    assert bench.happened() == ["add a http://h:1", "remove a 30"]
    await bench.members.left("a")
    assert bench.happened() == ["add a http://newer:1"]
    assert bench.gone == ["a"]


async def test_what_is_said_of_a_backend_changes_in_place() -> None:
    bench = Bench()
    source = bench.source()
    await source.finds(spec("a"))
    await source.finds(spec("a", limit=7))
    await source.finds(spec("a", limit=7))
    assert bench.happened() == ["add a http://h:1", "update a 7"]


async def test_the_first_source_that_finds_a_name_has_it_and_fixed_ones_are_taken() -> None:
    bench = Bench(fixed=["mine"])
    one, two = bench.source("one"), bench.source("two")
    await two.finds(spec("a", "two"), spec("mine", "two"), spec("b", "two"))
    assert bench.happened() == ["add a http://two:1", "add b http://two:1"]
    await one.finds(spec("b", "two"))
    await two.finds(spec("b", "two"))
    assert bench.happened() == ["remove a 30"]
    await bench.members.left("a")
    await two.finds()
    assert bench.happened() == [], "the other one finds it still"


async def test_one_that_cannot_join_does_not_keep_the_others_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    await bench.source().finds(spec("a", "bad"), spec("b"))
    assert bench.happened() == ["add b http://h:1"]
    assert "cannot join: bad URL" in caplog.text
