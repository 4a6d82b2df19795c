"""Fails when a file or a function has grown past what a reader takes in at once.

`python scripts/check_lengths.py PATH…`: files up to 400 lines, functions up to 60, both counted
as they stand, with their documentation. Of a command, whose parameters are its options with their
help, the signature does not count: it is read as a list.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE = 400
MAX_FUNCTION = 60


def complaints(path: Path) -> Iterator[str]:
    source = path.read_text()
    if (lines := source.count("\n")) > MAX_FILE:
        yield f"{path}: {lines} lines, at most {MAX_FILE}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno if _is_command(node) else node.lineno
            length = (node.end_lineno or first) - first + 1
            if length > MAX_FUNCTION:
                where = f"{path}:{node.lineno}: {node.name}"
                yield f"{where} has {length} lines, at most {MAX_FUNCTION}"


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Typer reads options from parameters that are `Annotated`."""
    annotations = [argument.annotation for argument in node.args.args]
    return any("Annotated[" in ast.unparse(a) for a in annotations if a is not None)


def main(roots: list[str]) -> int:
    files = (file for root in roots for file in sorted(Path(root).rglob("*.py")))
    found = [complaint for file in files for complaint in complaints(file)]
    print("\n".join(found) or "lengths: all within bounds")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
