"""The report on a terminal."""

from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.report.analysis import BackendReport, ClassReport, Report, Ttft

_COLUMNS = ("mean", "p50", "p90", "p95", "p99")
_MUCH = 0.1
"""A change of a tenth is worth a colour."""


def show(report: Report, unreadable: int, console: Console) -> None:
    """Print the whole report."""
    console.print(render(report, unreadable))


def render(report: Report, unreadable: int) -> RenderableType:
    hours = (report.until - report.since) / 3600
    parts: list[RenderableType] = [
        Text(f"TTFT from {_moment(report.since)} to {_moment(report.until)}", style="bold"),
        Text(f"in milliseconds; beside it the change against the {hours:g} h before", style="dim"),
    ]
    if not report.classes:
        parts.append(Text("\nno request ended in this window"))
    else:
        parts += [Text(), _classes(report), Text(), _stages(report)]
    if report.worst_backends:
        parts += [Text(), _backends(report.worst_backends)]
    if unreadable:
        parts.append(Text(f"\n{unreadable} lines could not be read", style="yellow"))
    return Group(*parts)


def _classes(report: Report) -> Table:
    table = _table("class", "requests", "failed", *_COLUMNS, "in target")
    for name, now in report.classes.items():
        before = report.before.get(name)
        table.add_row(
            name,
            f"{now.requests:,.0f}",
            _share(now.failed / now.requests),
            *(_change(now.ttft, before.ttft if before else None, which) for which in _COLUMNS),
            _target(now),
        )
    return table


def _stages(report: Report) -> Table:
    names = list(dict.fromkeys(name for c in report.classes.values() for name in c.stages))
    table = _table("where the time goes", *names)
    for service_class, now in report.classes.items():
        total = sum(now.stages.values())
        if total:
            table.add_row(service_class, *(_part(now.stages.get(n), total) for n in names))
    return table


def _backends(worst: tuple[BackendReport, ...]) -> Table:
    table = _table("worst backends", "streams", "failed", "p50", "p95", "p99")
    for backend in worst:
        ttft = backend.ttft
        tail = (ttft.p50, ttft.p95, ttft.p99) if ttft else (None, None, None)
        row = (_ms(seconds) for seconds in tail)
        table.add_row(backend.name, f"{backend.streams:,.0f}", _share(backend.failed), *row)
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, style="cyan")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _change(now: Ttft | None, before: Ttft | None, which: str) -> Text:
    if now is None:
        return Text("–")
    seconds: float = getattr(now, which)
    text = Text(_ms(seconds))
    if before is not None and (then := getattr(before, which)) > 0:
        change = seconds / then - 1
        style = "red" if change > _MUCH else "green" if change < -_MUCH else "dim"
        text.append(f" {change:+.0%}", style=style)
    return text


def _target(now: ClassReport) -> str:
    if now.within_target is None:
        return "–"
    return f"{_share(now.within_target)} ≤ {now.target:g} s"


def _part(seconds: float | None, total: float) -> str:
    return "–" if seconds is None else f"{_ms(seconds)} ({seconds / total:.0%})"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    ms = seconds * 1e3
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 1 else f"{ms:.3f}"


def _share(share: float) -> str:
    return f"{share:.1%}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
