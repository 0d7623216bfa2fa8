"""`sofa-fl report`: one HTML file about one or several runs. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COMPARISON = Path("comparison.html")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write; by default report.html in the run folder, or comparison.html.",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Also open it in a browser.")] = False,
) -> None:
    """Write a report on one run, or on several side by side, to open in a browser."""
    from sofa_fl.cli.screen import shell
    from sofa_fl.report.page import write_report

    if out is None and len(runs) > 1:
        out = COMPARISON
    file = write_report(runs, out)
    typer.echo(f"wrote {shell(file)}", err=True)
    if browser:
        import webbrowser

        webbrowser.open(file.resolve().as_uri())
