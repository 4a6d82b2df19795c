"""The engine of `bench.engine`, told only by what a gateway sees: first tokens and ends.

For simulations of thousands of engines. Sequences that decode all move by one token a step, so
that they are counted, not visited: a step costs what it begins and ends, however many run. And
while they all go on decoding the steps are alike: such a stretch is one event, which is cut short
when a sequence comes. Not here: the prefix cache, capped prefill chunks and attention; with those
a step is no such sum.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bench.engine import CannotServe, Emitted, EngineSpec


@dataclass(slots=True, eq=False)
class _Sequence:
    """`shift` is its computed tokens less the engine's steps: while it decodes, a constant."""

    id: str
    prompt: int
    last: int
    arrived: float
    computed: int = 0
    tokens: int = 0
    shift: int = 0
    running: bool = False


class CoarseEngine:
    """One engine, used as `bench.engine.Engine` is. Without a cap there is one partial prefill.

    It is the youngest that runs: whatever comes after it gets what it leaves of the budget.
    """

    def __init__(self, spec: EngineSpec) -> None:
        if spec.long_prefill_token_threshold or spec.attention or spec.cold_step:
            raise ValueError("only plain engines can be told coarsely")
        self.spec = spec
        self.blocks = self._free = spec.kv_tokens // spec.block_tokens
        self._waiting: deque[_Sequence] = deque()
        self._decoding: dict[_Sequence, None] = {}
        self._ends: list[tuple[int, int, _Sequence]] = []
        """Those that decode by the step that ends them."""
        self._phases = [0] * spec.block_tokens
        """How many of those that decode have the same shift, in blocks' terms."""
        self._partial: _Sequence | None = None
        self._prefilled: list[tuple[_Sequence, int]] = []
        self._step_ends: float | None = None
        """When the stretch ends: `_alike` steps, each as long as `_lasts`, from `_began` on."""
        self._began = self._lasts = 0.0
        self._alike = 1
        self._entered = 0
        self.steps = 0
        self.preemptions = 0

    @property
    def running(self) -> int:
        return len(self._decoding) + len(self._prefilled)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """The share of KV blocks in use; within a stretch, as in its first step."""
        return 1.0 - self._free / self.blocks

    def add(
        self,
        seq_id: str,
        prompt_tokens: int,
        output_tokens: int,
        now: float,
        *,
        prefix: Sequence[int] = (),
    ) -> None:
        """Queue a sequence. Raises CannotServe, and ValueError for one with a prefix."""
        if prefix:
            raise ValueError("a coarse engine has no prefix cache")
        last = prompt_tokens + output_tokens
        if min(prompt_tokens, output_tokens) < 1 or self._blocks(last - 1) > self.blocks:
            raise CannotServe(f"{prompt_tokens} and {output_tokens} tokens cannot run here")
        self._waiting.append(_Sequence(seq_id, prompt_tokens, last, now, tokens=prompt_tokens))
        if self._step_ends is None:
            self._begin_step(now)
        elif self._alike > 1:
            self._cut(now)

    def next_event(self) -> float | None:
        """When `advance` has something to do next; None while idle."""
        return self._step_ends

    def advance(self, now: float) -> list[Emitted]:
        """End every step that is over at `now`; first tokens and last ones, in time order."""
        emitted: list[Emitted] = []
        while self._step_ends is not None and self._step_ends <= now:
            ended = self._step_ends
            self._end_step(ended, emitted)
            self._begin_step(ended)
        return emitted

    def _begin_step(self, at: float) -> None:
        self._step_ends = None
        idle = not self._decoding and self._partial is None
        if idle and not self._waiting:
            return
        if idle:
            at = max(at, self._waiting[0].arrived)
        self._make_room()
        self._free -= self._growing()
        budget = self.spec.max_num_batched_tokens - len(self._decoding)
        if self._partial is not None:
            budget -= self._schedule(self._partial, budget)
            self._partial = None
        self._admit(at, budget)
        self._began, self._lasts, self._alike = at, self._duration(), self._steps_alike()
        for _ in range(self._alike):
            # Not a product: what one step after the other adds up to, to the last digit.
            at += self._lasts
        self._step_ends = at

    def _steps_alike(self) -> int:
        """How many steps, with the one that begins, nobody enters or leaves."""
        if self._prefilled or self._waiting:
            return 1
        steps = self._ends[0][0] - self.steps
        blocks = len(self._decoding) * (steps // self.spec.block_tokens + 1)
        return steps if blocks <= self._free else 1

    def _cut(self, now: float) -> None:
        """End the stretch with the step that is under way: who has come enters the next one."""
        ends, self._alike = self._began + self._lasts, 1
        while ends <= now:
            ends += self._lasts
            self._alike += 1
        self._step_ends = ends

    def _growing(self) -> int:
        """Blocks that those that decode need for the step that begins."""
        return self._phases[-self.steps % self.spec.block_tokens]

    def _make_room(self) -> None:
        """Preempt the youngest until the blocks suffice for those that run."""
        while self._growing() + self._partial_needs() > self._free:
            if self._partial is not None:
                seq, self._partial = self._partial, None
            else:
                seq = next(reversed(self._decoding))
                self._leave(seq)
            self._free += self._blocks(seq.computed)
            seq.computed = 0
            self._waiting.appendleft(seq)
            self.preemptions += 1

    def _partial_needs(self) -> int:
        seq = self._partial
        if seq is None:
            return 0
        budget = self.spec.max_num_batched_tokens - len(self._decoding)
        chunk = min(seq.tokens - seq.computed, budget)
        return self._blocks(seq.computed + chunk) - self._blocks(seq.computed)

    def _admit(self, at: float, budget: int) -> None:
        waiting = self._waiting
        while waiting and budget > 0 and self.running < self.spec.max_num_seqs:
            seq = waiting[0]
            # What arrives as a step begins is too late for it, unless it woke the engine.
            late = self.running and seq.arrived >= at
            if late or self._blocks(seq.tokens) > self._free:
                return
            waiting.popleft()
            budget -= self._schedule(seq, budget)

    def _schedule(self, seq: _Sequence, budget: int) -> int:
        chunk = min(seq.tokens - seq.computed, budget)
        self._free -= self._blocks(seq.computed + chunk) - self._blocks(seq.computed)
        self._prefilled.append((seq, chunk))
        return chunk

    def _duration(self) -> float:
        spec = self.spec
        total = spec.step_base + len(self._decoding) * spec.decode_per_seq
        for seq, chunk in self._prefilled:
            prefilling = seq.computed < seq.prompt or chunk > 1
            total += chunk * spec.prefill_per_token if prefilling else spec.decode_per_seq
        return total

    def _end_step(self, at: float, emitted: list[Emitted]) -> None:
        for _ in range(self._alike - 1):
            self.steps += 1
            self._free -= self._growing()
        self.steps += 1
        while self._ends and self._ends[0][0] <= self.steps:
            _, _, seq = heappop(self._ends)
            if seq.running and seq.last - seq.shift - 1 == self.steps:
                self._leave(seq)
                self._finish(seq, at, emitted)
        prefilled, self._prefilled = self._prefilled, []
        for seq, chunk in prefilled:
            seq.computed += chunk
            if seq.computed < seq.tokens:
                self._partial = seq
                continue
            seq.tokens += 1
            if seq.tokens == seq.last:
                self._finish(seq, at, emitted)
                continue
            if seq.tokens == seq.prompt + 1:
                emitted.append(Emitted(seq.id, at, 0, finished=False))
            self._enter(seq)

    def _enter(self, seq: _Sequence) -> None:
        """The sequence decodes from the next step on."""
        seq.shift, seq.running = seq.computed - self.steps, True
        self._phases[seq.shift % self.spec.block_tokens] += 1
        self._decoding[seq] = None
        self._entered += 1
        # Its last token comes out of the step after which all but that one are computed.
        heappush(self._ends, (seq.last - 1 - seq.shift, self._entered, seq))

    def _leave(self, seq: _Sequence) -> None:
        """The sequence decodes no more: it is over, or preempted."""
        seq.computed, seq.running = seq.shift + self.steps, False
        seq.tokens = seq.computed + 1
        self._phases[seq.shift % self.spec.block_tokens] -= 1
        del self._decoding[seq]

    def _finish(self, seq: _Sequence, at: float, emitted: list[Emitted]) -> None:
        self._free += self._blocks(seq.computed)
        emitted.append(Emitted(seq.id, at, seq.last - seq.prompt - 1, finished=True))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.spec.block_tokens)
