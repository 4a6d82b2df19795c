"""Candidates measured on the engine model, behind the real scheduler, in virtual time.

What the flags mean to the model: the first three are limits that it has itself (bench.engine);
the fourth is the size of its KV cache, from what a GPU's memory has left. Derived, not measured.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from bench.engine import EngineSpec
from bench.presets import Gpu, Model, engine
from bench.simulation import Outcome, Simulation
from bench.tuning.objective import Window
from bench.tuning.space import Flags
from bench.tuning.traffic import LONG, SHORT, Traffic
from bench.workload import Job
from scheduler.model import ClassSpec, Settings

ACTIVATION_BYTES = 102_400
"""Llama 3.1 8B's largest activations for a token of a step: gate and up projection (2 × 14,336),
their product, and two hidden states of 4,096, bfloat16. vLLM sets them aside for a full step."""
LOGITS_BYTES = 769_536
"""Its vocabulary (128,256) for a sequence of a step: bfloat16, and float32 to sample from."""
_DEFAULT_UTILIZATION = 0.9
_ENGINE = "engine"
_PATIENCE = 600.0
"""Seconds in the queue."""


class DoesNotFit(ValueError):
    """The flags leave no room for a KV cache: vLLM would not start."""


def spec_for(gpu: Gpu, model: Model, flags: Flags | None) -> EngineSpec:
    """The engine that these flags make; None: those that vLLM has by default. Raises DoesNotFit."""
    base = engine(gpu, model)
    flags = flags or Flags(base.max_num_seqs, base.max_num_batched_tokens)
    utilization = flags.gpu_memory_utilization or _DEFAULT_UTILIZATION
    room = gpu.memory * utilization - 2 * model.parameters
    room -= ACTIVATION_BYTES * flags.max_num_batched_tokens + LOGITS_BYTES * flags.max_num_seqs
    tokens = int(room / model.kv_bytes)
    if tokens < base.block_tokens:
        raise DoesNotFit(f"a utilisation of {utilization} leaves no memory for the KV cache")
    return replace(
        base,
        max_num_seqs=flags.max_num_seqs,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        long_prefill_token_threshold=flags.long_prefill_token_threshold,
        kv_tokens=tokens,
    )


@dataclass(frozen=True, slots=True)
class Simulated:
    """Engines of this GPU and model, made as candidates want them."""

    gpu: Gpu
    model: Model
    traffic: Traffic

    @asynccontextmanager
    async def started(self, flags: Flags | None) -> AsyncIterator["SimulatedEngine"]:
        yield SimulatedEngine(self, flags)

    def measure(self, flags: Flags | None, number: int) -> Window:
        """The window of this number, from an idle engine to the last answer."""
        jobs = self.traffic.jobs(number)
        try:
            spec = spec_for(self.gpu, self.model, flags)
        except DoesNotFit as error:
            return Window(0, 0, (), 0, 0.0, refused=str(error))
        simulation = Simulation(self._settings(), {_ENGINE: spec})
        model, peak = simulation.engines[_ENGINE], 0.0

        def look(_: Outcome) -> Job | None:
            nonlocal peak
            peak = max(peak, model.kv_usage)
            return None

        outcomes = simulation.run(jobs, scrape=True, then=look)
        return self._window(outcomes, peak, model.preemptions)

    def _settings(self) -> Settings:
        """The gateway's defaults; a queue that refused requests would flatter a slow engine."""
        short = ClassSpec(SHORT, self.traffic.bound, ttft_target=self.traffic.target)
        return Settings(classes=(short, ClassSpec(LONG, ttft_target=5.0)), queue_wait=_PATIENCE)

    def _window(self, outcomes: Sequence[Outcome], peak: float, preemptions: int) -> Window:
        traffic = self.traffic
        mine = [outcome.ttft for outcome in outcomes if traffic.counts(outcome.job)]
        ttfts = tuple(ttft for ttft in mine if ttft is not None)
        ends = [outcome.ended for outcome in outcomes if outcome.ended is not None]
        return Window(
            requests=len(outcomes),
            failed=len(outcomes) - len(ends),
            ttfts=ttfts,
            good=sum(ttft <= traffic.target for ttft in ttfts),
            seconds=max(ends, default=0.0) - outcomes[0].job.at,
            kv_usage=peak,
            preemptions=preemptions,
        )


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """One candidate's engine. Every window finds it idle, so it needs no start and no end."""

    simulated: Simulated
    flags: Flags | None

    async def window(self, number: int, repeat: int = 0) -> Window:
        """A repeat gives the same: there is no noise here."""
        # Nothing else here waits, and who is told to stop must get to hear of it.
        await asyncio.sleep(0)
        return self.simulated.measure(self.flags, number)
