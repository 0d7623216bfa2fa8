"""What a command prints, and how it fails: with one sentence on stderr and an exit code.

Colours and live displays are for terminals only, and names are text, never markup.

2    the input is wrong, or this machine cannot run it
130  interrupted (Ctrl-C)
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from sofa_fl.errors import SofaError, printable

if TYPE_CHECKING:
    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """A console for stdout or stderr; plain text unless it is a terminal."""
    from rich.console import Console  # here, since only some commands need it

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def put(text: str) -> None:
    """Print text on stdout: unchanged for programs, each line escaped on a terminal."""
    print("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)


def escape_unprintable() -> None:
    """Escape the characters that this terminal lacks, rather than fail on them."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def put_plain(data: Any, folder: Path, *, as_json: bool, quiet: bool) -> bool:
    """Print what a program reads, JSON or only the folder; False if a person is to read."""
    if as_json:
        put(json.dumps(data))
    elif quiet:
        put(str(folder))
    return as_json or quiet


def open_page(file: Path) -> None:
    """Open a page in a browser."""
    import webbrowser

    webbrowser.open(file.resolve().as_uri())


def shell(path: Path | str) -> str:
    """A path as one types it in a shell."""
    return printable(shlex.quote(str(path)))


class StoppedError(Exception):
    """Ctrl-C during a run; the message says how to continue it."""


class Commands(TyperGroup):
    """A group of commands that reports errors as sentences; bugs keep their traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with errors_as_sentences():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with errors_as_sentences():
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe is still ours to handle
            return result


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turn an error that the user can fix into a sentence and an exit code."""
    try:
        yield
    except SofaError as error:
        fail(f"error: {sentence(str(error))}", 2)
    except StoppedError as stop:
        fail(f"interrupted; {stop}", 130)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except BrokenPipeError:
        # The reader of our output has gone: print nothing, not even when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"error: {where}{error.strerror or error}", 2)
    except Exception as error:
        # Usage errors. Their class has moved between versions of typer, their shape has not.
        if not hasattr(error, "format_message"):
            raise
        # Typer and click each add what was meant, if it is known.
        text = re.sub(r"(Did you mean [^?]+\?) \1", r"\1", error.format_message())
        fail(f"error: {sentence(text)}", 2)


def fail(message: str, code: int) -> NoReturn:
    print(printable(message), file=sys.stderr)
    raise typer.Exit(code)


def sentence(message: str) -> str:
    """A message as one line; of a traceback, only the line that names the exception.

    More may follow it: CUDA's errors end with advice on how to debug them.
    """
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if line.startswith("Traceback ")]
    if starts:
        after = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")]
        lines = lines[: starts[0]] + after[:1]
    return " ".join(line.strip() for line in lines)
