"""Pictures of a load run: TTFT by class, TTFT over time, where the time went, latency by load."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.load.bursts import COUNT, SIZE, bursts
from bench.load.sample import Sample
from bench.pictures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STAGES = {
    "read": "read the request",
    "tokenize": "tokenize",
    "queue": "wait in the queue",
    "backend": "vLLM, to its first token",
}
"""The stages of the TTFT in their order, as a gateway names them, and as a person does."""


def draw_run(directory: Path, samples: Sequence[Sample], detail: dict[str, Any]) -> list[Path]:
    """All pictures that the samples allow; answers that were not streamed have no first token."""
    style.check()
    measured = [sample for sample in samples if not sample.warm_up]
    if all(sample.ttft is None for sample in measured):
        return []
    drawn = [_cdf(directory, measured), _over_time(directory, measured)]
    if detail["all"]["stages_ms"]:
        drawn.append(_waterfall(directory, detail["classes"]))
    return drawn


def _classes(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    names = sorted({sample.service_class for sample in samples}, reverse=True)
    return {name: [s for s in samples if s.service_class == name] for name in names}


def _milliseconds(samples: Sequence[Sample]) -> list[float]:
    return [ttft * 1e3 for sample in samples if (ttft := sample.ttft) is not None]


def _cdf(directory: Path, samples: Sequence[Sample]) -> Path:
    figure, (axes,) = style.panels()
    classes = _classes(samples)
    for name, mine in classes.items():
        values = sorted(_milliseconds(mine))
        shares = [100 * (number + 1) / len(values) for number in range(len(values))]
        axes.step(values, shares, where="post", color=style.colour(list(classes), name),
                  label=f"{name} ({len(values):,} answers)")  # fmt: skip
    axes.set_xscale("log")
    style.plain_numbers(axes.xaxis)
    axes.set(title="Time to first token, by class", ylim=(0, 101),
             xlabel="TTFT from the intended start, ms (logarithmic)",
             ylabel="share of the requests, %")  # fmt: skip
    axes.grid(visible=True)
    style.legend(axes, columns=3)
    return style.save(figure, directory, "ttft-cdf")


def _over_time(directory: Path, samples: Sequence[Sample]) -> Path:
    figure, (axes,) = style.panels(size=(9.0, 4.2))
    classes = _classes(samples)
    for number, (begin, end) in enumerate(bursts(samples)):
        label = f"burst: {COUNT} prompts over {SIZE:,} tokens in a second" if not number else None
        axes.axvspan(begin, max(end, begin + 0.1), color=style.FAINT, lw=0, label=label)
    for name, mine in classes.items():
        answered = [sample for sample in mine if sample.ttft is not None]
        axes.plot([s.intended for s in answered], _milliseconds(answered), linestyle="none",
                  marker=style.marker(list(classes), name), markersize=3.5, alpha=0.6,
                  markeredgewidth=0, color=style.colour(list(classes), name),
                  label=name)  # fmt: skip
    axes.set_yscale("log")
    style.plain_numbers(axes.yaxis)
    _mark_errors(axes, samples)
    axes.set(title="Time to first token over the run", xlabel="intended start, s",
             ylabel="TTFT, ms (logarithmic)")  # fmt: skip
    axes.grid(visible=True, axis="y")
    style.legend(axes, columns=4)
    return style.save(figure, directory, "ttft-over-time")


def _mark_errors(axes: "Axes", samples: Sequence[Sample]) -> None:
    """Requests without an answer, as crosses along the lower edge."""
    failed = [sample.intended for sample in samples if sample.error]
    if failed:
        bottom = axes.get_ylim()[0]
        axes.plot(failed, [bottom] * len(failed), "x", color="#000000", clip_on=False,
                  label=f"no answer ({len(failed):,})")  # fmt: skip


def _waterfall(directory: Path, classes: Mapping[str, dict[str, Any]]) -> Path:
    """Means, because only means add up to the mean TTFT."""
    names = sorted(classes, reverse=True)
    told = {name: classes[name] for name in names if classes[name]["stages_ms"]}
    figure, panels = style.panels(1, len(told), size=(4.0 + 3.4 * len(told), 3.2))
    for axes, (name, numbers) in zip(panels, told.items(), strict=True):
        means = {stage: values["mean"] for stage, values in numbers["stages_ms"].items()}
        total = numbers["ttft_ms"]["mean"]
        parts = {STAGES.get(stage, stage): mean for stage, mean in means.items()}
        parts["network and client"] = max(0.0, total - sum(means.values()))
        _bars(axes, parts)
        axes.set(title=f"{name}: mean TTFT {total:,.1f} ms", xlabel="ms since the intended start")
        if axes is not panels[0]:
            axes.set_yticklabels([])
    return style.save(figure, directory, "ttft-stages")


def _bars(axes: "Axes", parts: Mapping[str, float]) -> None:
    begin, total = 0.0, sum(parts.values())
    for number, (name, length) in enumerate(parts.items()):
        axes.barh(name, length, left=begin, color=style.COLOURS[number % len(style.COLOURS)])
        begin += length
        axes.text(begin + total * 0.015, number, f"{length:,.2f} ms", va="center", fontsize=9)
    axes.set_xlim(0, total * 1.25)
    axes.invert_yaxis()


def draw_sweep(directory: Path, steps: Sequence[dict[str, Any]]) -> Path:
    """TTFT and goodput against the offered rate. Raises MissingLibrary."""
    figure, (latency, goodput) = style.panels(2, 1, size=(7.2, 6.6))
    rates = [step["rate"] for step in steps]
    names = sorted({name for step in steps for name in step["classes"]}, reverse=True)
    for name in names:
        for statistic, line in (("p50", "--"), ("p99", "-")):
            values = [_ttft(step, name, statistic) for step in steps]
            latency.plot(rates, values, linestyle=line, marker=style.marker(names, name),
                         color=style.colour(names, name), label=f"{name} {statistic}")  # fmt: skip
    latency.set_yscale("log")
    style.plain_numbers(latency.yaxis)
    latency.set(title="Time to first token against load", ylabel="TTFT, ms (logarithmic)")
    goodput.plot(rates, rates, color=style.FAINT, label="offered")
    goodput.plot(rates, [step["all"]["requests_per_s"] for step in steps], marker="o",
                 linestyle="--", color=style.COLOURS[0], label="answered")  # fmt: skip
    goodput.plot(rates, [step["all"]["goodput_per_s"] for step in steps], marker="s",
                 color=style.COLOURS[2], label="good: within the objective")  # fmt: skip
    goodput.set(title="Goodput against load", xlabel="offered requests per second",
                ylabel="requests per second", ylim=(0, None))  # fmt: skip
    for axes in (latency, goodput):
        axes.grid(visible=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return style.save(figure, directory, "latency-against-load")


def _ttft(step: dict[str, Any], name: str, statistic: str) -> float:
    found: float = step["classes"].get(name, {}).get("ttft_ms", {}).get(statistic, float("nan"))
    return found
