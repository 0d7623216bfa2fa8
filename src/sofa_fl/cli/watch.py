"""`sofa-fl watch`: the report of a run that is going on, in a browser. Imports no torch."""

from __future__ import annotations

from typing import Annotated

import typer

from sofa_fl.cli.options import RunPath


def watch(
    run: RunPath,
    port: Annotated[
        int, typer.Option(metavar="N", help="Where to serve; 0 takes any that is free.")
    ] = 8765,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Who may look: by default this machine only.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
) -> None:
    """Show a run in the browser while it goes on; rounds appear as they end."""
    from sofa_fl.report.live import LiveServer

    with LiveServer(run, host, port) as server:
        typer.echo(f"{server.url} shows the run; end with Ctrl-C", err=True)
        if not server.is_loopback:
            typer.echo("warning: whoever reaches this machine can read the run", err=True)
        if browser:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("", err=True)
