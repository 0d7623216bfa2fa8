"""`sofa-fl watch`: a run in progress, or all runs of a folder, in a browser. Imports no torch."""

from __future__ import annotations

from typing import Annotated

import typer

from sofa_fl.cli.options import RunPath


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
