"""Candidates on the engine model: what the flags mean, and that the search finds the best."""

import asyncio
from dataclasses import replace

import pytest

from bench.presets import A100_40GB, LLAMA_8B
from bench.tuning.book import Book
from bench.tuning.exhaustive import exhaust
from bench.tuning.objective import Aim
from bench.tuning.search import Budget, Search
from bench.tuning.simulated import DoesNotFit, Simulated, spec_for
from bench.tuning.space import Flags, Space
from bench.tuning.traffic import ALL, LONG, SHORT, Traffic

FLAGS = Flags(64, 2048, 512, 0.9)
TRAFFIC = Traffic(rate=8.0, requests=120, prompt="lognormal:600:1.0", output="lognormal:4:0.5")
SMALL = Space(
    {
        "max_num_seqs": (4, 8, 16, 32),
        "max_num_batched_tokens": (1024, 2048, 4096),
        "long_prefill_token_threshold": (256, 512, 1024, 0),
        "gpu_memory_utilization": (0.7, 0.9),
    },
    Flags(16, 4096, 0, 0.9),
)
SEEDS = range(5)


class TestFlags:
    def test_limits_are_the_model_s_own(self) -> None:
        spec = spec_for(A100_40GB, LLAMA_8B, FLAGS)
        assert spec.max_num_seqs == 64
        assert spec.max_num_batched_tokens == 2048
        assert spec.long_prefill_token_threshold == 512

    def test_without_flags_it_is_as_vllm_starts(self) -> None:
        spec = spec_for(A100_40GB, LLAMA_8B, None)
        assert (spec.max_num_seqs, spec.max_num_batched_tokens) == (256, 2048)
        assert spec.long_prefill_token_threshold == 0

    @pytest.mark.parametrize(
        "less",
        [{"gpu_memory_utilization": 0.8}, {"max_num_batched_tokens": 8192}, {"max_num_seqs": 256}],
    )
    def test_what_else_takes_memory_leaves_less_for_the_cache(self, less: dict[str, float]) -> None:
        whole = spec_for(A100_40GB, LLAMA_8B, FLAGS).kv_tokens
        assert spec_for(A100_40GB, LLAMA_8B, replace(FLAGS, **less)).kv_tokens < whole

    async def test_an_engine_without_room_does_not_start(self) -> None:
        small = replace(FLAGS, gpu_memory_utilization=0.35)
        with pytest.raises(DoesNotFit):
            spec_for(A100_40GB, LLAMA_8B, small)
        async with Simulated(A100_40GB, LLAMA_8B, TRAFFIC).started(small) as engine:
            assert "utilisation of 0.35" in (await engine.window(0)).refused


class TestWindows:
    async def test_a_search_that_is_told_to_stop_does(self) -> None:
        simulated = Simulated(A100_40GB, LLAMA_8B, TRAFFIC)

        async def endless() -> None:
            async with simulated.started(FLAGS) as engine:
                while True:
                    await engine.window(0)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await endless()

    def test_all_candidates_get_the_same_requests_and_each_window_others(self) -> None:
        assert TRAFFIC.jobs(1) == TRAFFIC.jobs(1)
        assert TRAFFIC.jobs(1) != TRAFFIC.jobs(2)
        assert TRAFFIC.jobs(1) != replace(TRAFFIC, seed=1).jobs(1)

    def test_only_the_class_counts(self) -> None:
        counted = {
            name: len(
                Simulated(A100_40GB, LLAMA_8B, replace(TRAFFIC, service_class=name))
                .measure(FLAGS, 0)
                .ttfts
            )
            for name in (SHORT, LONG, ALL)
        }
        assert counted[SHORT] + counted[LONG] == counted[ALL] == 120
        assert min(counted.values()) > 0

    def test_recorded_sizes_are_drawn_from(self) -> None:
        recorded = tuple(TRAFFIC.jobs(0))
        drawn = replace(TRAFFIC, recorded=recorded, requests=300).jobs(0)
        assert len(drawn) == 300
        assert {job.prompt for job in drawn} <= {job.prompt for job in recorded}

    def test_a_cache_that_is_too_small_preempts(self) -> None:
        crowd = replace(TRAFFIC, rate=50.0, prompt="2000", output="200", service_class=ALL)
        tight = replace(FLAGS, gpu_memory_utilization=0.55)
        found = {
            flags: Simulated(A100_40GB, LLAMA_8B, crowd).measure(flags, 0)
            for flags in (tight, replace(tight, max_num_seqs=8))
        }
        assert found[tight].preemptions > 0
        assert found[tight].kv_usage > 0.95
        assert found[replace(tight, max_num_seqs=8)].preemptions == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_search_comes_near_the_optimum_with_a_quarter_of_the_evaluations(
    seed: int,
) -> None:
    simulated = Simulated(A100_40GB, LLAMA_8B, replace(TRAFFIC, seed=seed))
    budget = Budget(windows=1, evaluations=len(SMALL.candidates) / 4)
    book = Book(SMALL, {}, seed, None)
    one = Search(simulated, book, Aim.TTFT, budget, tell=lambda *_: None)
    await one.run()
    every = exhaust(simulated, SMALL, one.objective, windows=1)
    assert one.evaluations <= every.evaluations / 4
    assert every.scores[one.best().flags] <= 1.05 * every.scores[every.best]
    assert max(every.scores.values()) > 1.5 * every.scores[every.best], "there is a lot to find"
