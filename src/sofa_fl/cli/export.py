"""`sofa-fl export` and `assign`: models of a run for other programs and for unseen clients."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import typer

from sofa_fl.cli.options import AsJson, RunPath
from sofa_fl.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


def assign(
    run: RunPath,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="The client's inputs: an .npz file with an array [bold]x[/], or a .csv file with "
            "one column per input value. If there are labels, as an array or column [bold]y[/], "
            "they are used too.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the model to this file, .safetensors or .onnx.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the place in a run's tree of a client that was not in the run, from its inputs."""
    from sofa_fl.experiment.storage.run_folder import RunFolder

    RunFolder.open(run)  # before loading torch, which takes seconds
    from sofa_fl.cli.screen import put, shell
    from sofa_fl.experiment.serving import newcomers
    from sofa_fl.experiment.serving.model_files import open_run

    x, y = read_samples(data)
    shape = open_run(run, None, None).serving.shape
    if x.ndim == 2 and x.shape[1:] != shape and x[0].size == _size(shape):
        x = x.reshape(len(x), *shape)
    found = newcomers.assign(run, x, y, file=out)
    if as_json:
        about: dict[str, Any] = {name: getattr(found, name) for name in ("node", "path", "clients")}
        put(json.dumps({**about, "file": None if out is None else str(out)}))
        return
    by = "inputs" if y is None else "labels"
    put(f"by its {by} the client belongs to {found.node}, path {' > '.join(map(str, found.path))}")
    if out is not None:
        put(f"wrote {shell(out)}")


def read_samples(file: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Inputs, and labels if there are any."""
    import numpy as np

    from sofa_fl.data.csv_files import read_csv

    if file.suffix == ".csv":
        columns = read_csv(file)
        y = columns.pop("y", None)
        if text := [name for name, column in columns.items() if column.dtype.kind not in "iufb"]:
            raise DataError(f"columns of {file} must be numbers, but {text[0]!r} is not")
        return np.stack(list(columns.values()), axis=1), y
    if file.suffix != ".npz":
        raise DataError(f"inputs must be in an .npz or a .csv file, got {file.name}")
    try:
        with np.load(file, allow_pickle=False) as arrays:  # no pickle
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise DataError(f"cannot read {file}: {error}") from None
    if "x" not in found:
        raise DataError(f"{file} must have an array x, got {', '.join(found) or 'nothing'}")
    return found["x"], found.get("y")


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
