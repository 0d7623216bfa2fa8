"""`sofa-fl export`: a model of a run as a file for other programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sofa_fl.cli.options import AsJson, RunPath
from sofa_fl.errors import ConfigError


def export(
    run: RunPath,
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="[bold]root[/], the number of a node, or [bold]client:3[/] for the model that "
            "client 3 uses.",
        ),
    ] = "root",
    format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="safetensors (default) or onnx."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write; by default RUN-NODE.FORMAT in this folder.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a node's model, or the model that a client uses, from a run's newest checkpoint."""
    from sofa_fl.experiment.storage.run_folder import RunFolder

    RunFolder.open(run)  # before loading torch, which takes seconds
    if format is not None and format not in ("safetensors", "onnx"):
        raise ConfigError(f"--format must be safetensors or onnx, got {format!r}")
    name = f"{run.resolve().name}-{node.replace(':', '-').replace('/', '-')}"
    file = out or Path(f"{name}.{format or 'safetensors'}")
    from sofa_fl.cli.screen import put, shell
    from sofa_fl.experiment.serving import model_files

    kind: Any = format
    exported = model_files.export(run, file, node=node, format=kind)
    if as_json:
        put(json.dumps({**asdict(exported), "file": str(exported.file)}))
    else:
        model = f"{node} after round {exported.round}, inputs {exported.shape}"
        put(f"wrote {shell(exported.file)}: {model}")
