"""From a model, a GPU and a class's prompts to the flags of `vllm serve`, each with its reason.

The numbers are those of the source document's tuning and model tables (DESIGN.md §5), in the words
of today's vLLM; what has no counterpart there any more is translated, never emitted. Pure: facts
in, flags out. Every flag made here is checked against the installed vLLM's parser
(tests/real_vllm/test_plan.py).
"""

from dataclasses import dataclass

from backends.plans.model import Flag, Value, Variable
from backends.plans.shapes import Shape

SHORT_MEAN = 128
"""The source: a pool whose mean prompt is under so many tokens is a short one."""
LONG_TEXT = 2048
"""The source: a longer prompt is "sudden long text", and long sequences take more memory each."""
LONG_TEXT_FEWER = 0.25
PEAK_RESERVE = 0.10
PEAK_UTILIZATION = 0.03
LEAST_UTILIZATION = 0.70
OFFLOAD_SHARE = 0.10
BYTES_PER_WEIGHT = 2
FLOPS = 140e12
"""What one data-centre GPU sustains in prefill: 45% of an A100's peak. Only where nobody measured.
"""


@dataclass(frozen=True, slots=True)
class Band:
    """The source's row for one size of model."""

    named: str
    least_seqs: int
    most_seqs: int
    least_utilization: float
    most_utilization: float


BANDS = (
    (10.0, Band("7B", 40, 48, 0.85, 0.90)),
    (40.0, Band("13B", 24, 32, 0.80, 0.85)),
    (float("inf"), Band("70B", 8, 16, 0.75, 0.80)),
)
"""By size in billions of parameters, up to the first number."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """`gpu_memory` in GB per GPU, `gpus` per engine (tensor parallel), `size` of the model in
    billions of parameters. `prefill_rate` in tokens a second, measured, or None."""

    size: float
    gpu_memory: float
    gpus: int = 1
    prefill_rate: float | None = None

    @property
    def band(self) -> Band:
        return next(band for most, band in BANDS if self.size <= most)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a class asks of its engine.

    `fastokens`: our proof that this tokenizer's fast engine equals the reference one held, or did
    not (None: nobody looked). `peak`: plan for announced peak hours.
    """

    service_class: str
    shape: Shape
    ttft_target: float
    fastokens: bool | None = None
    peak: bool = False

    @property
    def short(self) -> bool:
        return self.shape.mean < SHORT_MEAN

    @property
    def long_text(self) -> bool:
        return self.shape.p95 > LONG_TEXT


def flags_for(hardware: Hardware, demand: Demand) -> tuple[Flag, ...]:
    """The flags of one engine of this class. Raises ValueError when the model cannot fit, and for
    a number of GPUs that vLLM would refuse."""
    _check_gpus(hardware.gpus)
    _check_fit(hardware)
    seqs = max_num_seqs(hardware, demand)
    batch = max_num_batched_tokens(int(seqs.value), demand)
    flags = [seqs, batch, gpu_memory_utilization(hardware, demand)]
    if hardware.gpus > 1:
        why = f"the model is spread over {hardware.gpus} GPUs"
        flags.append(Flag("tensor-parallel-size", hardware.gpus, why))
    flags.append(max_num_queued_tokens(hardware, demand))
    if demand.long_text:
        flags += [long_prefill_token_threshold(int(batch.value)), kv_offloading_size(hardware)]
        if not demand.fastokens:
            flags.append(renderer_num_workers())
    return tuple(flags)


def environment_for(demand: Demand) -> tuple[Variable, ...]:
    """The environment of one engine of this class."""
    if not demand.fastokens:
        return ()
    why = "fastokens was proved equal to the reference tokenizer for this model"
    return (Variable("VLLM_USE_FASTOKENS", "1", why),)


def max_num_seqs(hardware: Hardware, demand: Demand) -> Flag:
    memory = hardware.gpu_memory
    if demand.short:
        seqs, why = min(64.0, 2 * memory), f"short pool: min(64, 2 × {memory:g} GB)"
    else:
        seqs, why = min(32.0, 1.5 * memory), f"long pool: min(32, 1.5 × {memory:g} GB)"
    band = hardware.band
    if seqs > band.most_seqs:
        seqs = band.most_seqs
        why += f", at most {band.most_seqs} for a {band.named} model"
    if demand.long_text:
        seqs *= 1 - LONG_TEXT_FEWER
        why += f", {LONG_TEXT_FEWER:.0%} fewer: p95 is over {LONG_TEXT:,} tokens"
    if demand.peak:
        seqs *= 1 - PEAK_RESERVE
        why += f", {PEAK_RESERVE:.0%} kept for peak hours"
    return _flag("max-num-seqs", max(int(seqs), 1), why, demand)


def max_num_batched_tokens(seqs: int, demand: Demand) -> Flag:
    each = 256 if demand.short else 512
    pool = "short" if demand.short else "long"
    return _flag("max-num-batched-tokens", each * seqs, f"{pool} pool: {each} × {seqs}", demand)


def gpu_memory_utilization(hardware: Hardware, demand: Demand) -> Flag:
    band = hardware.band
    limits = f"{band.least_utilization:.2f}–{band.most_utilization:.2f} for a {band.named} model"
    value = band.least_utilization if demand.long_text else band.most_utilization
    end = "lower end, for sudden long text" if demand.long_text else "upper end"
    if demand.peak:
        value = max(value - PEAK_UTILIZATION, LEAST_UTILIZATION)
        end += f", −{PEAK_UTILIZATION} for peak hours"
    return _flag("gpu-memory-utilization", round(value, 2), f"{limits}: {end}", demand)


def max_num_queued_tokens(hardware: Hardware, demand: Demand) -> Flag:
    """What the engine could not prefill within the target, it refuses (503: busy, not dead)."""
    rate, how = hardware.prefill_rate, "measured"
    if rate is None:
        rate = hardware.gpus * FLOPS / (2 * hardware.size * 1e9)
        how = f"estimated at {FLOPS / 1e12:.0f} TFLOP/s a GPU: measure it (--prefill-rate)"
    tokens = max(int(demand.ttft_target * rate), 1)
    why = f"TTFT target {demand.ttft_target:g} s × {rate:,.0f} tokens/s ({how})"
    return _flag("max-num-queued-tokens", tokens, why, demand)


def long_prefill_token_threshold(batch: int) -> Flag:
    return Flag(
        "long-prefill-token-threshold",
        max(batch // 4, 1),
        "a long prompt takes at most a quarter of a step, so that others prefill beside it",
    )


def kv_offloading_size(hardware: Hardware) -> Flag:
    size = round(OFFLOAD_SHARE * hardware.gpu_memory * hardware.gpus, 1)
    return Flag(
        "kv-offloading-size",
        size,
        f"GiB of host memory, {OFFLOAD_SHARE:.0%} of the GPU's: what swap space was meant for, "
        "and --swap-space is gone",
    )


def renderer_num_workers() -> Flag:
    return Flag(
        "renderer-num-workers",
        2,
        "long prompts may come as text, and one thread would tokenize them one after the other",
    )


def _check_fit(hardware: Hardware) -> None:
    weights = BYTES_PER_WEIGHT * hardware.size / hardware.gpus
    room = hardware.band.most_utilization * hardware.gpu_memory
    if weights >= room:
        needed = _power_of_two(int(BYTES_PER_WEIGHT * hardware.size / room) + 1)
        raise ValueError(
            f"{hardware.size:g} billion weights are {weights:.0f} GB on each of {hardware.gpus} "
            f"GPU(s), which have {room:.0f} GB for them: use at least {needed} GPUs"
        )


def _check_gpus(gpus: int) -> None:
    """vLLM wants a number that divides the attention heads. How many those are isn't known here;
    of the models that need several GPUs most have 32, 64 or 128."""
    if (more := _power_of_two(gpus)) != gpus:
        raise ValueError(
            f"{gpus} GPUs do not divide a model's attention heads evenly, and vLLM would not "
            f"start: use {more // 2} or {more}"
        )


def _power_of_two(least: int) -> int:
    """The smallest one that is not less."""
    return 1 << (least - 1).bit_length()


def _flag(name: str, value: Value, why: str, demand: Demand) -> Flag:
    """A flag of which the reason says what it was derived from, where that is the traffic."""
    seen = f"mean {demand.shape.mean:.0f}, p95 {demand.shape.p95:.0f} tokens"
    return Flag(name, value, f"{why} ({seen}, {demand.shape.origin})")
