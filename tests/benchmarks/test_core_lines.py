"""Lines of code are counted without what is said about them."""

from __future__ import annotations

from core_lines import code_lines

SOURCE = '''"""What this is.

In three lines."""

import os  # for no reason

# A comment.
def f(x: int) -> str:
    """Say."""
    text = """two
    lines"""
    return text * x
'''


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    assert code_lines(SOURCE) == 5
    assert code_lines("") == 0
