"""`sofa-fl report`, `watch` and `tree`: what runs look like. They import no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.cli.options import AsJson, RunPath
from sofa_fl.cli.screen import console, open_page, put, shell

if TYPE_CHECKING:
    from sofa_fl.report.history import Round

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
    from sofa_fl.report.page import write_report

    if out is None and len(runs) > 1:
        out = COMPARISON
    file = write_report(runs, out)
    typer.echo(f"wrote {shell(file)}", err=True)
    if browser:
        open_page(file)


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


def tree(
    run: RunPath,
    round: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Show the tree after this round; 0 is the warm-up, the default the last round.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every client, however many there are.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tree to an SVG file instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the tree of a run, even while it is running."""
    from sofa_fl.report.history import read_round

    record = read_round(run, round)
    if svg is not None:
        write_svg(record, svg)
    if as_json:
        put(json.dumps(as_dict(record)))
    elif svg is None:
        from sofa_fl.cli.show import show_round

        show_round(console(), record, every=every)


def write_svg(record: Round, file: Path) -> None:
    from sofa_fl.experiment.storage.disk import write_text
    from sofa_fl.report.tree_svg import tree_svg

    write_text(file, tree_svg(record))
    typer.echo(f"wrote {shell(file)}", err=True)


def as_dict(record: Round) -> dict[str, Any]:
    """A round as one JSON object."""
    from sofa_fl.experiment.storage.events import edit_to_json

    tree = record.tree
    return {
        "run": str(record.run),
        "method": record.method,
        "data": record.data,
        "seed": record.seed,
        "round": record.round,
        "rounds": record.rounds,
        "metric": record.metric,
        "mean": record.mean,
        "worst": record.worst,
        "parent": {str(node): up for node, up in tree.parent.items()},
        "clients": [
            {
                "client": client,
                **({"name": record.names[client]} if client in record.names else {}),
                "accuracy": record.accuracy[client],
            }
            for client in tree.clients
        ],
        "clusters": [
            {
                "cluster": cluster,
                "level": tree.level[cluster],
                "clients": sorted(tree.clients_of(cluster)),
                "loss": record.loss.get(cluster),
                "pool": record.pool.get(cluster),
            }
            for cluster in tree.clusters
        ],
        "edits": [edit_to_json(edit) for edit in record.edits],
    }
