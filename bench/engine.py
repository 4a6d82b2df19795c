"""A model of vLLM's engine: continuous batching in steps with a token budget.

Lives here: which sequences a step serves, how long it takes, what it emits. Pure: time is an
argument (seconds on any one clock), so the same object runs a simulation in virtual time and
`bench.fake_vllm` in real time. Not here: text, token ids, sockets.

Follows vLLM v1's scheduler (`vllm/v1/core/sched/scheduler.py`, 0.32): running sequences are
served first, in the order of their admission; a prompt that does not fit the step's budget is
prefilled in chunks, so without `long_prefill_token_threshold` a long one takes every step until
it is done; a waiting sequence is admitted only when its whole prompt fits the free KV blocks;
when a running one finds no block, the youngest running one is preempted and recomputed.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.kv import BlockPool, Holding


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine's limits and costs; limits are named as vLLM's flags. Costs are in seconds.

    A step that computes `n` new tokens of a sequence with `c` tokens before them costs
    `n * prefill_per_token` while the prompt is read, `decode_per_seq` after that, and
    `attention * n * (c + n / 2)` in both: the pairs that causal attention looks at.
    `kv_tokens` is the KV cache's size. `long_prefill_token_threshold` 0 means no cap on a chunk.
    The first step of all, and each that begins after `cold_after` seconds without one, takes
    `cold_step` longer.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    long_prefill_token_threshold: int = 0
    kv_tokens: int = 524_288
    block_tokens: int = 16
    step_base: float = 0.0
    prefill_per_token: float = 1e-4
    decode_per_seq: float = 0.0
    attention: float = 0.0
    cold_step: float = 0.0
    cold_after: float = math.inf

    def __post_init__(self) -> None:
        if min(self.max_num_seqs, self.max_num_batched_tokens, self.block_tokens) < 1:
            raise ValueError("max_num_seqs, max_num_batched_tokens and block_tokens start at 1")
        if self.kv_tokens < self.block_tokens:
            raise ValueError("the KV cache needs at least one block")


SERIAL = EngineSpec()
"""0.1 ms per prompt token, steps of 2,048 tokens, free decode: long prompts block short ones."""


class Emitted(NamedTuple):
    """A token came out. A tuple, because an engine makes one for each token of each sequence."""

    seq_id: str
    at: float
    token_index: int
    finished: bool


class CannotServe(ValueError):
    """The sequence can never run here: it is empty, or larger than the whole KV cache."""


@dataclass(slots=True, eq=False)
class _Sequence:
    id: str
    tokens: int
    """Known tokens: the prompt and what was emitted."""
    last: int
    """`tokens` at the end of the answer."""
    prompt: int
    arrived: float
    prefix: Sequence[int]
    computed: int = 0
    holding: Holding = field(default_factory=Holding)


class Engine:
    """One engine. Call `advance` no later than each `next_event()`, and before reading counts."""

    def __init__(self, spec: EngineSpec = SERIAL) -> None:
        self.spec = spec
        self._pool = BlockPool(spec.kv_tokens // spec.block_tokens)
        self._running: dict[str, _Sequence] = {}
        self._waiting: OrderedDict[str, _Sequence] = OrderedDict()
        self._scheduled: list[tuple[_Sequence, int]] = []
        self._step_ends: float | None = None
        self._last_step_ended = -math.inf
        self._stall = 0.0
        self.preemptions = 0
        """Sequences put back to waiting for want of KV blocks, since the start."""
        self.prompt_tokens = 0
        """Prompt tokens of the sequences whose first token came, cached ones included."""
        self.cached_tokens = 0
        """Prompt tokens that the prefix cache spared, since the start."""
        self.generated_tokens = 0
        self.steps = 0

    def __repr__(self) -> str:
        return (
            f"<Engine running={self.running} waiting={self.waiting} kv={self.kv_usage:.3f} "
            f"step_ends={self._step_ends}>"
        )

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """The share of KV blocks that sequences hold, 0..1."""
        return self._pool.held / self._pool.blocks

    def add(
        self,
        seq_id: str,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
        *,
        prefix: Sequence[int] = (),
    ) -> None:
        """Queue a sequence that will emit exactly `output_tokens` tokens.

        `prefix` turns the prefix cache on for it: chained hashes of the prompt's full blocks of
        `block_tokens`, in order. Raises CannotServe, and KeyError when the id is in use.
        """
        if seq_id in self._running or seq_id in self._waiting:
            raise KeyError(seq_id)
        if prompt_tokens < 1 or output_tokens < 1:
            raise CannotServe("a sequence needs at least one prompt token and one output token")
        last = prompt_tokens + output_tokens
        # The last token is emitted, but no step computes its KV.
        if self._blocks(last - 1) > self._pool.blocks:
            raise CannotServe(f"{last} tokens exceed the KV cache of {self.spec.kv_tokens}")
        usable = prefix[: prompt_tokens // self.spec.block_tokens]
        self._waiting[seq_id] = _Sequence(
            seq_id, prompt_tokens, last, prompt_tokens, arrived=now, prefix=usable
        )
        if self._step_ends is None:
            self._begin_step(now)

    def abort(self, seq_id: str) -> bool:
        """Drop a sequence; False when it is not here (finished, or never came).

        It emits nothing more. A step under way keeps its length, as a GPU's would.
        """
        seq = self._waiting.pop(seq_id, None) or self._running.pop(seq_id, None)
        if seq is None:
            return False
        self._pool.release(seq.holding)
        return True

    def stall(self, seconds: float) -> None:
        """Make the next step that begins take this much longer."""
        self._stall += seconds

    def next_event(self) -> float | None:
        """When `advance` has something to do next; None while idle."""
        return self._step_ends

    def advance(self, now: float) -> list[Emitted]:
        """End every step that is over at `now` and begin the next ones; tokens in time order."""
        emitted: list[Emitted] = []
        while self._step_ends is not None and self._step_ends <= now:
            ended = self._step_ends
            self._end_step(ended, emitted)
            self._last_step_ended = ended
            self._begin_step(ended)
        return emitted

    def check(self) -> None:
        """Assert what must hold between any two calls; for tests and simulations."""
        assert len(self._running) <= self.spec.max_num_seqs
        assert sum(chunk for _, chunk in self._scheduled) <= self.spec.max_num_batched_tokens
        assert (self._step_ends is None) <= (not self._running and not self._waiting)
        for seq, chunk in self._scheduled:
            assert chunk > 0
            if self._running.get(seq.id) is seq:
                assert len(seq.holding) >= self._blocks(seq.computed + chunk)
        self._pool.check([seq.holding for seq in self._running.values()])

    def _begin_step(self, at: float) -> None:
        self._step_ends = None
        if not self._running and self._waiting:
            # After an idle time that `advance` was not told of, the next step waits for its work.
            at = max(at, next(iter(self._waiting.values())).arrived)
        self._admit(at, self._schedule_running())
        if self._scheduled:
            self.steps += 1
            self._step_ends = at + self._delay(at) + self._duration()

    def _schedule_running(self) -> int:
        """Give each running sequence its chunk, oldest first; returns what the budget has left."""
        budget = self.spec.max_num_batched_tokens
        for seq in list(self._running.values()):
            # Some budget is always left: each was admitted with a token to spare for it, and
            # only the last one's chunk can still grow.
            chunk = self._chunk(seq, budget)
            while seq.id in self._running and not self._reserve(seq, chunk):
                self._preempt_youngest()
            if seq.id not in self._running:
                break
            self._scheduled.append((seq, chunk))
            budget -= chunk
        return budget

    def _admit(self, at: float, budget: int) -> None:
        while self._waiting and budget > 0 and len(self._running) < self.spec.max_num_seqs:
            seq = next(iter(self._waiting.values()))
            # What arrives as a step begins is too late for it, unless it woke the engine.
            if (self._running and seq.arrived >= at) or not self._hold_prefix(seq):
                return
            chunk = self._chunk(seq, budget)
            self._reserve(seq, chunk)
            del self._waiting[seq.id]
            self._running[seq.id] = seq
            self._scheduled.append((seq, chunk))
            budget -= chunk

    def _hold_prefix(self, seq: _Sequence) -> bool:
        """Start the sequence after its cached blocks, if all its known tokens fit with them."""
        # At least one token is always computed: the next one comes out of it.
        reusable = seq.prefix[: (seq.tokens - 1) // self.spec.block_tokens]
        hits = reusable[: self._pool.cached(reusable)]
        if not self._pool.fits(hits, self._blocks(seq.tokens) - len(hits)):
            return False
        self._pool.share(seq.holding, hits)
        seq.computed = len(hits) * self.spec.block_tokens
        self.cached_tokens += seq.computed
        return True

    def _chunk(self, seq: _Sequence, budget: int) -> int:
        chunk = min(seq.tokens - seq.computed, budget)
        cap = self.spec.long_prefill_token_threshold
        return min(chunk, cap) if cap else chunk

    def _reserve(self, seq: _Sequence, chunk: int) -> bool:
        missing = self._blocks(seq.computed + chunk) - len(seq.holding)
        return self._pool.take(seq.holding, missing)

    def _preempt_youngest(self) -> None:
        _, seq = self._running.popitem()
        self._pool.release(seq.holding)
        seq.computed = 0
        self._waiting[seq.id] = seq
        self._waiting.move_to_end(seq.id, last=False)
        self.preemptions += 1

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.spec.block_tokens)

    def _delay(self, at: float) -> float:
        stall, self._stall = self._stall, 0.0
        cold = at - self._last_step_ended >= self.spec.cold_after or self.steps == 1
        return stall + self.spec.cold_step if cold else stall

    def _duration(self) -> float:
        spec = self.spec
        total = spec.step_base
        for seq, chunk in self._scheduled:
            prefilling = seq.computed < seq.prompt or chunk > 1
            total += chunk * spec.prefill_per_token if prefilling else spec.decode_per_seq
            total += spec.attention * chunk * (seq.computed + chunk / 2)
        return total

    def _end_step(self, at: float, emitted: list[Emitted]) -> None:
        scheduled, self._scheduled = self._scheduled, []
        for seq, chunk in scheduled:
            if self._running.get(seq.id) is not seq:
                continue  # aborted meanwhile
            if seq.prefix and seq.computed < seq.prompt:
                self._publish(seq, chunk)
            seq.computed += chunk
            if seq.computed == seq.tokens:
                emitted.append(self._emit(seq, at))

    def _publish(self, seq: _Sequence, chunk: int) -> None:
        size = self.spec.block_tokens
        done = seq.prefix[seq.computed // size : (seq.computed + chunk) // size]
        self._pool.publish(seq.holding, done)

    def _emit(self, seq: _Sequence, at: float) -> Emitted:
        index = seq.tokens - seq.prompt
        seq.tokens += 1
        self.generated_tokens += 1
        if index == 0:
            self.prompt_tokens += seq.prompt
        finished = seq.tokens == seq.last
        if finished:
            del self._running[seq.id]
            self._pool.release(seq.holding)
        return Emitted(seq.id, at, index, finished)
