"""How far the fitted model is off: requests it has not seen, played in virtual time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.calibrate.fit import Fitted
from bench.engine import Engine
from bench.figures import percentile
from bench.load.sample import Sample


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds from the request's intended start."""

    ttft: float
    e2e: float


def predict(fitted: Fitted, samples: Sequence[Sample]) -> list[Predicted]:
    """What the model says of these requests, at the times and sizes that were measured."""
    engine = Engine(fitted.spec)
    first: dict[str, float] = {}
    last: dict[str, float] = {}

    def advance(until: float) -> None:
        for seq_id, at, index, _ in engine.advance(until):
            if index == 0:
                first[seq_id] = at
            last[seq_id] = at

    for sample in sorted(samples, key=lambda sample: sample.intended):
        while (at := engine.next_event()) is not None and at < sample.intended:
            advance(at)
        name = str(sample.number)
        engine.add(name, sample.prompt_tokens, max(1, sample.output_tokens), sample.intended)
    while (at := engine.next_event()) is not None:
        advance(at)
    return [
        Predicted(
            first[str(sample.number)] - sample.intended + fitted.overhead,
            last[str(sample.number)] - sample.intended + fitted.overhead,
        )
        for sample in samples
    ]


def errors(samples: Sequence[Sample], predicted: Sequence[Predicted]) -> dict[str, float]:
    """Relative: the median over requests, and of the percentiles as a capacity plan uses them."""
    pairs = {
        "ttft": [
            (one.ttft, model.ttft)
            for one, model in zip(samples, predicted, strict=True)
            if one.ttft is not None
        ],
        "e2e": [(one.e2e, model.e2e) for one, model in zip(samples, predicted, strict=True)],
    }
    found: dict[str, float] = {}
    for name, both in pairs.items():
        found[f"{name}_error_median"] = median(abs(model / real - 1) for real, model in both)
        for share in (0.5, 0.9):
            real, model = (percentile([pair[side] for pair in both], share) for side in (0, 1))
            key = f"{name}_p{share * 100:.0f}"
            found |= {f"{key}_ms": real * 1e3, f"{key}_model_ms": model * 1e3}
            found[f"{key}_error"] = model / real - 1
    return {name: round(value, 4) for name, value in found.items()}
