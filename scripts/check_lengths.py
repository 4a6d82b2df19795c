"""Fails when a file or a function has grown past what a reader takes in at once.

`python scripts/check_lengths.py PATH…`: files up to 400 lines, functions up to 60, both counted
as they stand, with their documentation.
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
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                where = f"{path}:{node.lineno}: {node.name}"
                yield f"{where} has {length} lines, at most {MAX_FUNCTION}"


def main(roots: list[str]) -> int:
    files = (file for root in roots for file in sorted(Path(root).rglob("*.py")))
    found = [complaint for file in files for complaint in complaints(file)]
    print("\n".join(found) or "lengths: all within bounds")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
