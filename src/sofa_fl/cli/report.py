"""`sofa-fl report` and `sofa-fl watch`: runs in a browser. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sofa_fl.cli.options import RunPath

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


def watch(
    run: RunPath,
    port: Annotated[
        int, typer.Option(metavar="N", help="Port to serve on; 0 means any free port.")
    ] = 8765,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to serve on; by default only this machine can connect."
        ),
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Also open a browser.")] = False,
) -> None:
    """Show a run in the browser while it is running, or all runs in a folder such as runs/."""
    from sofa_fl.cli.screen import shell
    from sofa_fl.report.live import LiveServer

    with LiveServer(run, host, port) as server:
        typer.echo(f"{server.url} shows {shell(run)}; stop with Ctrl-C", err=True)
        if not server.is_loopback:
            typer.echo("warning: anyone who can reach this machine can see the run", err=True)
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("", err=True)
