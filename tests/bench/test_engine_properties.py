"""What holds for the engine model whatever is thrown at it, in virtual time."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.engine import Emitted, Engine, EngineSpec

specs = st.builds(
    EngineSpec,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(1, 80),
    long_prefill_token_threshold=st.sampled_from([0, 0, 7, 32]),
    kv_tokens=st.sampled_from([64, 96, 200]),
    block_tokens=st.sampled_from([1, 8, 16]),
    step_base=st.sampled_from([0.0, 0.001]),
    decode_per_seq=st.sampled_from([0.0, 0.002]),
    attention=st.sampled_from([0.0, 1e-6]),
)


@dataclass(frozen=True)
class Add:
    prompt: int
    output: int
    prefix: int | None


@dataclass(frozen=True)
class Abort:
    index: int


@dataclass(frozen=True)
class Sleep:
    seconds: float


adds = st.builds(
    Add, st.integers(1, 40), st.integers(1, 20), st.one_of(st.none(), st.integers(0, 2))
)
actions = st.lists(
    st.one_of(
        adds, adds, st.builds(Abort, st.integers(0, 30)), st.builds(Sleep, st.floats(0, 0.02))
    ),
    max_size=30,
)


@dataclass
class Run:
    """Plays actions against an engine and checks it after each."""

    engine: Engine
    now: float = 0.0
    wanted: dict[str, int] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    emitted: list[Emitted] = field(default_factory=list)

    def play(self, action: Add | Abort | Sleep) -> None:
        if isinstance(action, Add):
            name = f"s{len(self.wanted)}"
            prefix = () if action.prefix is None else _hashes(action.prefix, 40)
            self.engine.add(name, action.prompt, action.output, self.now, prefix=prefix)
            self.wanted[name] = action.output
        elif isinstance(action, Abort):
            name = f"s{action.index}"
            if self.engine.abort(name):
                self.aborted.add(name)
        else:
            self.now += action.seconds
            self.emitted += self.engine.advance(self.now)
        self.check()

    def finish(self) -> None:
        while (at := self.engine.next_event()) is not None:
            assert at >= self.now
            self.now = at
            self.emitted += self.engine.advance(at)
            self.check()

    def check(self) -> None:
        assert 0.0 <= self.engine.kv_usage <= 1.0
        self.engine.check()


def _hashes(family: int, count: int) -> list[int]:
    """Chained hashes: families share their first two blocks, then differ."""
    return [block if block < 2 else 1000 * (family + 1) + block for block in range(count)]


def played(spec: EngineSpec, script: list[Add | Abort | Sleep]) -> Run:
    run = Run(Engine(spec))
    for action in script:
        run.play(action)
    run.finish()
    return run


@given(specs, actions)
@settings(max_examples=150, deadline=None)
def test_everyone_gets_exactly_its_tokens_in_order(spec, script):
    run = played(spec, script)
    seen: dict[str, list[int]] = {name: [] for name in run.wanted}
    for token in run.emitted:
        seen[token.seq_id].append(token.token_index)
        assert token.finished == (token.token_index == run.wanted[token.seq_id] - 1)
    for name, indexes in seen.items():
        assert indexes == list(range(len(indexes)))
        if name not in run.aborted:
            assert len(indexes) == run.wanted[name]
    assert run.engine.generated_tokens == len(run.emitted)


@given(specs, actions)
@settings(max_examples=80, deadline=None)
def test_it_ends_empty_and_with_every_block_back(spec, script):
    engine = played(spec, script).engine
    assert (engine.running, engine.waiting, engine.kv_usage) == (0, 0, 0.0)
    assert engine.next_event() is None


@given(specs, actions)
@settings(max_examples=80, deadline=None)
def test_tokens_come_in_time_order_and_one_per_sequence_and_step(spec, script):
    run = played(spec, script)
    assert [e.at for e in run.emitted] == sorted(e.at for e in run.emitted)
    if spec.step_base:
        assert max(Counter((e.seq_id, e.at) for e in run.emitted).values(), default=1) == 1


@given(specs, st.lists(adds, min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_first_tokens_come_in_the_order_of_arrival(spec, script):
    run = played(spec, [Add(a.prompt, a.output, None) for a in script])
    if spec.long_prefill_token_threshold == 0:
        order = [e.seq_id for e in run.emitted if e.token_index == 0]
        assert order == list(run.wanted)


@given(specs, actions)
@settings(max_examples=80, deadline=None)
def test_how_often_it_is_asked_changes_nothing(spec, script):
    """Advancing late gives the tokens, and the times, that advancing at each event gives."""
    script = [action for action in script if not isinstance(action, Abort)]
    eager, lazy = Run(Engine(spec)), Run(Engine(spec))
    for action in script:
        if isinstance(action, Sleep):
            until = eager.now + action.seconds
            while (at := eager.engine.next_event()) is not None and at < until:
                eager.emitted += eager.engine.advance(at)
            eager.now = lazy.now = until
        else:
            lazy.play(action)
            eager.emitted += eager.engine.advance(eager.now)
            eager.play(action)
    eager.finish()
    lazy.emitted += lazy.engine.advance(1e9)
    assert eager.emitted == lazy.emitted
