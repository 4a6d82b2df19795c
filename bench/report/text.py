"""The report as Markdown, and its place in a page. Pure."""

from collections.abc import Mapping, Sequence
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
    """One row for each claim: what, which command, the figure."""
    commands = {one.name: _command(one) for one in ended}
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


def _command(one: Ended) -> str:
    return f"`bench {' '.join(one.arguments)}`"


def _machines(documents: Documents) -> str:
    """Where and on which revision; several when the results are from several places."""
    places = {_machine(document["environment"]): None for document in documents.values()}
    return "Measured on " + "; ".join(places) + "." if places else "Nothing was measured."


def _machine(environment: Mapping[str, Any]) -> str:
    return (
        f"{environment['cores']} cores ({environment['processor']}), Python "
        f"{environment['python']}, revision {environment['revision'] or 'unknown'}"
    )


def placed(page: str, text: str) -> str:
    """The page with the text between its two marks. Raises ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
