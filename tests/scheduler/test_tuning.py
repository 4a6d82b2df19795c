"""Settings that follow the traffic: each rule as a dialogue, and that they come to rest."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import BurstSpec, ClassSpec, Settings
from scheduler.tuning import (
    BURST_RECOVERY,
    BURST_SIZE,
    Change,
    Knob,
    Scene,
    Supply,
    Tuner,
    TuningSpec,
    adapted,
    knobs,
)

SPEC = TuningSpec(samples=100, dwell=120.0)
SHORT = Knob("class:short", "max_prompt_tokens")
MEDIUM = Knob("class:medium", "max_prompt_tokens")
TWO = Settings((ClassSpec("long", ttft_target=5.0), ClassSpec("short", 1024)))
THREE = Settings((ClassSpec("short", 512), ClassSpec("medium", 2048), ClassSpec("long")))
QUIET = Settings(TWO.classes, burst=BurstSpec(in_flight=None))
HALVES = (Supply(20_000, frozenset({"short"})), Supply(20_000, frozenset({"long"})))


class House:
    """A tuner and the values that it has moved. Traffic is (length, count) pairs."""

    def __init__(self, configured: Settings = QUIET, *supply: Supply) -> None:
        self.configured = configured
        self.supply: Sequence[Supply] = supply or HALVES
        self.tuner = Tuner(SPEC)
        self.values: dict[Knob, float] = {}
        self.pinned: frozenset[Knob] = frozenset()
        self.now = 0.0
        self.story: list[tuple[float, Change]] = []

    @property
    def present(self) -> Settings:
        return adapted(self.configured, self.values)

    def traffic(self, *lengths: tuple[int, int]) -> None:
        for tokens, count in lengths:
            for _ in range(count):
                self.tuner.arrived(tokens, self.now)

    def look(self, after: float = 10.0) -> Mapping[Knob, float]:
        """Look again after a while; returns what was changed."""
        self.now += after
        scene = Scene(self.configured, self.present, self.supply, self.pinned)
        changes = self.tuner.look(scene, self.now)
        for change in changes:
            assert change.before != change.after
            assert change.why
            self.story.append((self.now, change))
        self.values |= {change.knob: change.after for change in changes}
        return {change.knob: change.after for change in changes}


# Half of the backends are the short class's: half of the work should be, too.
CHATS = (200, 900), (8000, 25)
PASSAGES = (1500, 400), (8000, 120)


def test_a_boundary_goes_up_to_where_its_backends_have_their_part_of_the_work() -> None:
    house = House()
    house.traffic(*PASSAGES)
    (bound,) = house.look().values()
    assert 1500 <= bound <= 4096
    assert house.story[0][1].why.startswith("0% of the work was in prompts up to 1024 tokens, for")


def test_it_goes_down_when_they_have_too_much_of_it() -> None:
    house = House()
    house.traffic((900, 900), (300, 1000), (8000, 10))
    (bound,) = house.look().values()
    assert 300 <= bound < 900


def test_it_stays_while_no_place_is_better_by_the_margin() -> None:
    house = House()
    house.traffic(*CHATS)
    assert house.look() == {}
    house.traffic((200, 9000))
    assert house.look() == {}


def test_it_stays_while_it_is_off_by_less_than_the_margin() -> None:
    house = House()
    house.traffic((300, 1000), (900, 280), (8000, 56))  # 55% of the work, of 50%
    assert house.look() == {}
    house.traffic((900, 350))
    (bound,) = house.look().values()
    assert 300 <= bound < 900


def test_it_goes_up_only_where_chance_would_not_bring_it_back() -> None:
    house = House()
    house.traffic((1500, 500), (8000, 100))  # 48% of the work, of 50%
    assert house.look() == {}


def test_it_stays_where_too_little_work_would_move() -> None:
    slow = (Supply(1_500, frozenset({"short"})), Supply(1_500, frozenset({"long"})))
    house = House(QUIET, *slow)
    house.traffic((300, 400), (900, 5), (8000, 20))
    assert house.look() == {}


def test_it_comes_to_stand_in_the_middle_of_a_gap() -> None:
    house = House()
    house.traffic(*PASSAGES)
    (bound,) = house.look().values()
    assert 2000 <= bound <= 3000  # between 1,500 and the most that it may be, 4,096


def test_a_prompt_that_takes_half_of_the_target_by_itself_stays_out() -> None:
    slow = (Supply(4_000, frozenset({"short"})), Supply(4_000, frozenset({"long"})))
    house = House(QUIET, *slow)
    house.traffic((1300, 500), (8000, 100))
    assert house.look() == {}
    house.traffic((1100, 1500), (8000, 100))
    (bound,) = house.look().values()
    assert 1100 <= bound <= 0.5 * 0.6 * 4_000


def test_one_that_is_far_too_long_for_measured_rates_is_put_out() -> None:
    slow = (Supply(1_500, frozenset({"short"})), Supply(1_500, frozenset({"long"})))
    house = House(QUIET, *slow)
    house.traffic((300, 400), (900, 100), (8000, 40))
    (bound,) = house.look().values()
    assert 300 <= bound <= 0.5 * 0.6 * 1_500


def test_shared_backends_count_in_equal_parts() -> None:
    house = House(QUIET, Supply(20_000), Supply(20_000, frozenset({"short", "long"})))
    house.traffic(*PASSAGES)
    assert SHORT in house.look()


def test_a_boundary_stays_where_the_larger_class_spills_over() -> None:
    classes = (ClassSpec("short", 1024), ClassSpec("long", spill=("short",)))
    house = House(Settings(classes, burst=BurstSpec(in_flight=None)))
    house.traffic(*PASSAGES)
    assert house.look() == {}


def test_an_outage_of_a_class_is_no_reason() -> None:
    house = House(QUIET, Supply(20_000, frozenset({"long"})))
    house.traffic(*PASSAGES)
    assert house.look() == {}
    house.supply = ()
    assert house.look() == {}


def test_several_boundaries_never_meet() -> None:
    house = House(Settings(THREE.classes, burst=BurstSpec(in_flight=None)), Supply(20_000))
    house.traffic((100, 10), (1800, 3000), (1900, 3000), (2600, 50))
    house.look()
    assert set(house.values) == {MEDIUM} or house.values[SHORT] < house.values[MEDIUM]
    assert house.present  # which refuses classes of one bound


def test_nothing_moves_before_enough_was_seen() -> None:
    house = House()
    house.traffic((1500, 70), (8000, 20))
    assert house.look() == {}
    house.traffic((1500, 20), (8000, 8))
    assert SHORT in house.look()


def test_a_value_that_moved_stays_for_the_dwell_time() -> None:
    house = House()
    house.traffic(*PASSAGES)
    assert SHORT in house.look()
    house.traffic((900, 9000), (300, 9000))
    assert house.look(SPEC.dwell - 1.0) == {}
    assert SHORT in house.look(1.0)


def test_what_an_operator_has_set_stays() -> None:
    house = House()
    house.pinned = frozenset({SHORT})
    house.traffic(*PASSAGES)
    assert house.look() == {}
    house.pinned = frozenset()
    assert SHORT in house.look()


def test_a_class_that_the_file_does_not_bound_has_no_boundary() -> None:
    house = House(QUIET)
    house.configured = Settings((ClassSpec("other", 700), ClassSpec("long")))
    scene = Scene(house.configured, QUIET, HALVES)
    house.traffic(*PASSAGES)
    assert all(change.knob != SHORT for change in house.tuner.look(scene, 1.0))


def test_values_of_classes_that_are_gone_change_nothing() -> None:
    assert adapted(TWO, {MEDIUM: 77.0}) == TWO
    changed = adapted(TWO, {SHORT: 77.0, BURST_SIZE: 4000.0, BURST_RECOVERY: 0.5})
    assert [spec.max_prompt_tokens for spec in changed.classes] == [None, 77]
    assert (changed.burst.prompt_tokens, changed.burst.clean_interval) == (4000, 0.5)


def test_what_may_move_is_each_bound_and_the_bursts() -> None:
    assert knobs(THREE) == {SHORT, MEDIUM, BURST_SIZE, BURST_RECOVERY}


def bursts(rate: float = 3_000.0) -> House:
    return House(TWO, Supply(rate))


def test_prompts_that_come_all_the_time_are_no_burst() -> None:
    house = bursts()
    house.traffic((200, 700), (4000, 280), (8000, 20))
    size = house.look()[BURST_SIZE]
    assert 4000 <= size < 8000
    assert BURST_SIZE not in house.look(SPEC.dwell)


def test_some_long_prompts_are_no_reason_to_move_what_a_burst_is() -> None:
    house = bursts()
    house.traffic((200, 930), (4000, 70))
    assert BURST_SIZE not in house.look()


def test_a_burst_becomes_smaller_only_where_it_would_be_rarer_still() -> None:
    house = bursts(rate=500.0)
    house.traffic((200, 960), (4000, 40))
    assert BURST_SIZE not in house.look()
    house.traffic((200, 1000))
    assert house.look()[BURST_SIZE] == 512


def test_a_burst_takes_as_long_as_the_smallest_class_may_wait() -> None:
    house = bursts(rate=9_000.0)
    house.traffic((200, 1000))
    assert house.look()[BURST_SIZE] == 0.6 * 9_000
    house.supply = (Supply(100.0),)
    assert house.look(SPEC.dwell)[BURST_SIZE] == 512
    house.supply = (Supply(1e6),)
    assert house.look(SPEC.dwell)[BURST_SIZE] == 8192


def test_a_pool_recovers_at_the_pace_of_its_prefills() -> None:
    house = bursts()
    house.traffic((200, 990), (5000, 10))
    assert house.look() == {BURST_RECOVERY: 1.67}
    house.supply = (Supply(3_300.0),)
    assert house.look(SPEC.dwell) == {}
    house.supply = (Supply(500.0),)
    assert house.look(SPEC.dwell)[BURST_RECOVERY] == 4.0


def test_where_nothing_is_halved_nothing_moves() -> None:
    house = House(QUIET, Supply(9_000.0))
    house.traffic((200, 1000))
    assert house.look() == {}


mixes = st.lists(
    st.tuples(st.integers(20, 30_000), st.integers(1, 20)), min_size=1, max_size=5, unique=True
)
fleets = st.lists(
    st.builds(
        Supply,
        st.floats(500, 50_000),
        st.sampled_from([frozenset[str](), frozenset({"short"}), frozenset({"long"})]),
    ),
    min_size=1,
    max_size=4,
)


def drawn(random: Random, mix: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Lengths near those of the mix, by chance."""
    weights = [weight for _, weight in mix]
    picked = random.choices([length for length, _ in mix], weights, k=count)
    return [(max(1, round(length * random.uniform(0.9, 1.1))), 1) for length in picked]


@settings(max_examples=30, deadline=None)
@given(mixes, fleets, st.integers(0, 1000))
def test_under_steady_traffic_every_value_comes_to_rest(
    mix: list[tuple[int, int]], fleet: list[Supply], seed: int
) -> None:
    """Ten memories long, with chance in the lengths and 5% of it in the rates."""
    house, random = House(TWO, *fleet), Random(seed)
    for _ in range(60):
        house.traffic(*drawn(random, mix, 60))
        house.supply = [Supply(s.rate * random.uniform(0.95, 1.05), s.classes) for s in fleet]
        house.look(50.0)
    for knob in (SHORT, BURST_SIZE, BURST_RECOVERY):
        moves = [(at, c.after > c.before) for at, c in house.story if c.knob == knob]
        assert len(moves) <= 3, house.story
        # Near a threshold chance may tip a value over it late; never to and fro.
        assert len({up for at, up in moves if at > 600.0}) <= 1, house.story


@settings(max_examples=30, deadline=None)
@given(st.lists(mixes, min_size=3, max_size=6), fleets, st.integers(0, 1000))
def test_whatever_comes_values_stay_in_bounds_and_apart_in_time(
    changing: list[list[tuple[int, int]]], fleet: list[Supply], seed: int
) -> None:
    house, random = House(TWO, *fleet), Random(seed)
    for mix in changing:
        for _ in range(8):
            house.traffic(*drawn(random, mix, 60))
            house.look(40.0)
            assert 256 <= house.values.get(SHORT, 1024) <= 4096
            assert 512 <= house.values.get(BURST_SIZE, 2048) <= 8192
            assert 0.25 <= house.values.get(BURST_RECOVERY, 1.0) <= 4.0
    for knob in (SHORT, BURST_SIZE, BURST_RECOVERY):
        moved = [at for at, change in house.story if change.knob == knob]
        assert all(later - earlier >= SPEC.dwell for earlier, later in pairwise(moved))
