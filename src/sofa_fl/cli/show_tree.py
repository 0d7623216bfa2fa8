"""`sofa-fl tree`: the tree of any round. Reads the run folder and imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sofa_fl.cli.options import AsJson, RunPath

if TYPE_CHECKING:
    from sofa_fl.report.history import Round


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
    from sofa_fl.cli.screen import console, put
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
    from sofa_fl.cli.screen import shell
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
