"""The measurements of a whole report: each a command of `python -m bench`, in full and in brief.

In brief means that everything runs and writes valid results, in seconds: its figures mean nothing.
"""

from dataclasses import dataclass

TINY_TOKENIZER = "bench/data/tokenizer"


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is also the result file's. `quick` None: left out of the brief form.

    `real`: in full it needs the vLLM environment of bench/vllm_env, which takes minutes to build.
    """

    name: str
    command: str
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = ()
    real: bool = False


SUITE = (
    Step(
        "selfcheck", "selfcheck",
        quick=("--rounds", "1", "--requests", "50", "--limit-ms", "1000"),
    ),
    Step("overhead", "overhead", quick=("--quick", "--seconds", "0.6")),
    Step(
        "preprocess", "preprocess", ("--seconds", "0.5"),
        quick=("--seconds", "0.05", "--tokenizer", TINY_TOKENIZER),
    ),
    Step("simulate-hol", "simulate", ("--scenario", "hol"),
         quick=("--scenario", "hol", "--requests", "400")),
    Step("simulate-burst", "simulate", ("--scenario", "burst"), quick=("--scenario", "burst")),
    Step(
        "simulate-headline", "simulate", ("--scenario", "headline", "--rate", "1000"),
        quick=("--scenario", "headline", "--rate", "20", "--seconds", "2"),
    ),
    Step("decisions", "decisions", quick=("--seconds", "0.02", "--rounds", "2")),
    Step(
        "compare", "compare", ("--scenario", "hol,burst,chat", "--rounds", "2", "--seconds", "30"),
        quick=("--peers", "direct,forebay", "--scenario", "hol-35", "--rounds", "1",
               "--seconds", "3"),
    ),
    Step("prefix", "prefix",
         quick=("--policies", "direct,forebay", "--rounds", "1", "--seconds", "4")),
    Step("warm", "warm", quick=("--simulated", "--rounds", "1"), real=True),
    Step("idle", "idle", quick=("--idles", "1", "--rounds", "1")),
    Step("chaos", "chaos", quick=("--requests", "100", "--concurrency", "8")),
    Step("soak", "soak", quick=None),
    Step("ttft", "ttft", ("--real",), quick=None, real=True),
    Step("ttft-curve", "ttft", ("--real", "--part", "curve"), quick=None, real=True),
    Step("calibrate", "calibrate", ("--real",), quick=None, real=True),
)  # fmt: skip


def chosen(*, quick: bool, real: bool, only: str | None) -> list[Step]:
    """The steps to run, in order. Raises ValueError for a name that is none."""
    names = {step.name for step in SUITE}
    wanted = names if only is None else set(only.split(","))
    if unknown := wanted - names:
        raise ValueError(
            f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    return [
        step
        for step in SUITE
        if step.name in wanted and (step.quick is not None if quick else real or not step.real)
    ]
