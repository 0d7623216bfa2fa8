"""Consoles: colours and live displays only on a terminal, and names as text, never as markup."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rich.console import Console

from sofa_fl.report.words import printable


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr; plain text unless it is a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def put(text: str) -> None:
    """Print text on stdout: unchanged for programs, escaped on a terminal."""
    print(printable(text) if sys.stdout.isatty() else text)


def shell(path: Path | str) -> str:
    """A path as one types it in a shell."""
    return printable(shlex.quote(str(path)))
