"""Consoles: colours and moving lines on a terminal only, and names as text, never as markup."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rich.console import Console

from sofa_fl.report.words import printable


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error; what is not a terminal gets plain text."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def put(text: str) -> None:
    """One line on stdout for a program to read, so as it is; a terminal gets it in print."""
    print(printable(text) if sys.stdout.isatty() else text)


def shell(path: Path | str) -> str:
    """A path as it is typed in a shell."""
    return printable(shlex.quote(str(path)))
