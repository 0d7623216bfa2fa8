"""`sofa-fl export` and `assign`: models of a run for other programs and for unseen clients."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import typer

from sofa_fl.cli.options import AsJson, RunPath
from sofa_fl.cli.screen import put, shell
from sofa_fl.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sofa_fl.data.csv_files import CsvConfig, CsvTable


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
            help="The client's raw inputs: a .csv file, whose columns are found by their names if "
            "the run's data were tables, or an .npz file with an array [bold]x[/]. Labels are used "
            "too, if there are any: in the target's column, or as an array [bold]y[/].",
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
    from math import prod

    import numpy as np

    from sofa_fl.experiment.run.config import load_config
    from sofa_fl.experiment.serving import newcomers
    from sofa_fl.experiment.serving.model_files import open_run

    opened = open_run(run, None, None)
    preprocessing = opened.serving.preprocessing
    has_names = preprocessing is not None and bool(preprocessing.columns)
    csv = load_config(RunFolder.open(run).config_file).data.csv
    x, y = read_samples(data, csv, as_table=has_names)
    if isinstance(x, np.ndarray) and x.shape[1:] == (prod(opened.shape),):
        x = x.reshape(len(x), *opened.shape)
    found = newcomers.assign(run, x, y, file=out)
    if as_json:
        about: dict[str, Any] = {name: getattr(found, name) for name in ("node", "path", "clients")}
        put(json.dumps({**about, "file": None if out is None else str(out)}))
        return
    path = " > ".join(map(str, found.path))
    put(f"by its {found.by} the client belongs to {found.node}, path {path}")
    if out is not None:
        put(f"wrote {shell(out)}")


def read_samples(
    file: Path, csv: CsvConfig, *, as_table: bool
) -> tuple[NDArray[Any] | CsvTable, NDArray[Any] | None]:
    """Inputs, and labels if there are any; with `as_table`, a CSV file as it is."""
    import numpy as np

    from sofa_fl.data.csv_files import ENDINGS, read_csv

    if file.suffix.lower() in ENDINGS:
        columns = read_csv(file, delimiter=csv.delimiter, decimal=csv.decimal, blanks=csv.blanks)
        if as_table:
            return columns, None
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
