"""Count the lines of code of the tree's core: how much there is to read of it.

    python benchmarks/core_lines.py

Blank lines, comments and docstrings do not count. The plain core is all of `sofa_fl.topology` but
the folder that only makes it faster.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import sofa_fl

TOPOLOGY = Path(sofa_fl.__file__).parent / "topology"
FAST = "fast"
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def code_lines(text: str) -> int:
    """How many lines of a source file have code on them."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def main() -> None:
    counts = {path: code_lines(path.read_text()) for path in sorted(TOPOLOGY.rglob("*.py"))}
    for path, num in counts.items():
        if num:
            print(f"{num:5} {path.relative_to(TOPOLOGY)}")
    fast = sum(num for path, num in counts.items() if path.parent.name == FAST)
    print(f"{sum(counts.values()) - fast:5} plain\n{fast:5} fast")


if __name__ == "__main__":
    main()
