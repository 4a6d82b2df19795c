"""The report as Markdown, and its place in a page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.report.claims import CLAIMS, Summaries
from bench.report.headline import word
from bench.report.run import Ended

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

Documents = Mapping[str, Mapping[str, Any]]
"""By step, its result."""


def summaries(documents: Documents) -> Summaries:
    return {name: document["summary"] for name, document in documents.items()}


def figures(documents: Documents, ended: Sequence[Ended]) -> str:
    """One row for each claim: what, which command, the figure; and the steps that failed."""
    commands = {name: _command(document["environment"]) for name, document in documents.items()}
    known = summaries(documents)
    rows = [
        f"| {claim.about} | {commands.get(claim.step, '–')} | {claim.told(known)} |"
        for claim in CLAIMS
    ]
    failed = [f"- `{one.name}` failed with status {one.status}" for one in ended if one.status]
    lines = [_machines(documents), "", "| claim | command | figure |", "| --- | --- | --- |", *rows]
    return "\n".join([*lines, *(["", *failed] if failed else [])])


def headline(found: Sequence[Mapping[str, Any]]) -> str:
    """The source's claims: what it says, what was found."""
    lines = ["| the source says | what was measured | found | |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {one['source']} | {one['about']} | {one['figure']} | {word(one['met'])} |"
        for one in found
    ]
    return "\n".join(lines)


def _command(environment: Mapping[str, Any]) -> str:
    return f"`{environment['command']}`" if "command" in environment else "–"


def _machines(documents: Documents) -> str:
    """Where and on which revisions; several when the results are from several places."""
    revisions: dict[str, dict[str, None]] = {}
    for document in documents.values():
        found = document["environment"]
        machine = f"{found['cores']} cores ({found['processor']}), Python {found['python']}"
        revisions.setdefault(machine, {})[found["revision"] or "unknown"] = None
    if not revisions:
        return "Nothing was measured."
    return "Measured on " + "; ".join(_place(*one) for one in revisions.items()) + "."


def _place(machine: str, revisions: Iterable[str]) -> str:
    told = sorted(revisions)
    return f"{machine}, revision{'s' if len(told) > 1 else ''} {', '.join(told)}"


def placed(page: str, text: str) -> str:
    """The page with the text between its two marks. Raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
