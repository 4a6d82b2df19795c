"""The share of preprocessing in the time to first token over concurrency, as a picture."""

from pathlib import Path

from bench.ttft.report import Detail


def draw(detail: Detail, path: Path) -> None:
    """One point for each concurrency of the detail's cells, which must be of one set-up and size.

    The share is 1 - (direct, ids) / TTFT: what would be saved if the prompt came as ready ids.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = sorted((int(name.rpartition("_c")[2]), cell) for name, cell in detail.items())
    clients = [str(concurrency) for concurrency, _ in points]
    picture = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(picture)
    share, ttft = picture.subplots(1, 2)
    for side, label, mark in (
        ("direct", "vLLM asked directly", "o-"),
        ("forebay", "through Forebay", "s-"),
    ):
        share.plot(clients, [100 * cell[f"share_{side}"] for _, cell in points], mark, label=label)
        ttft.plot(clients, [cell[f"ttft_{side}_ms"] for _, cell in points], mark, label=label)
    ttft.plot(clients, [cell["ttft_ids_ms"] for _, cell in points], "^:", label="direct, ready ids")
    share.axhline(0, color="0.6", linewidth=0.8)
    share.set(xlabel="clients at once", ylabel="share of preprocessing in the TTFT, %")
    ttft.set(xlabel="clients at once", ylabel="TTFT, median, ms", yscale="log")
    for axes in (share, ttft):
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    picture.savefig(path, dpi=130)
