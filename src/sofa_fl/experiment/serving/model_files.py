"""Models of a run for use elsewhere: as a `state_dict` in safetensors, in ONNX, or for `peft`.

A client's model is the one the client uses: the blend it serves, with its own class mix added to
the outputs. An ONNX file contains all of that, and takes raw rows; a safetensors file holds the
weights, with the rest as metadata.
"""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sofa_fl.data.columns import Table, is_table, raw_rows
from sofa_fl.data.preprocess import Preprocessing, TargetScaling
from sofa_fl.errors import ConfigError, DataError, ModelError, RunError
from sofa_fl.experiment.run.config import parse_config
from sofa_fl.experiment.run.values import read_values, without_retired
from sofa_fl.experiment.scoring.outputs import Whole, outputs_of
from sofa_fl.experiment.serving.adapter import write_adapter
from sofa_fl.experiment.storage import checkpoint
from sofa_fl.experiment.storage.disk import DamagedError, write_bytes
from sofa_fl.experiment.storage.frozen_file import with_frozen_of
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.storage.saving import Serving, state_type
from sofa_fl.methods.registry import make_method
from sofa_fl.models.flat import as_vector, check_size
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build, network_factory

if TYPE_CHECKING:
    from sofa_fl.methods.method import Method, View
    from sofa_fl.models.flat import Vector

Format = Literal["safetensors", "onnx", "peft"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported model, and how to use it.

    Attributes:
        file: The file that was written.
        node: `root`, the number of a node, or `client:3`, where a client's name may replace its
            number.
        round: The round of the checkpoint that the model comes from.
        shape: The shape of one raw input, without the batch.
        scale, shift: The network expects `x * scale + shift`; an ONNX file does this itself.
        prior: Values to add to the outputs; an ONNX file does this itself, and so does an adapter
            whose head has a bias. Empty if there is nothing to add.
        preprocessing: How raw inputs are preprocessed before scaling; an ONNX file does this
            itself. None if they are not.
        target_scaling: In a regression, what the outputs are to be multiplied by (`std`) before
            `mean` is added; an ONNX file does this itself. None if there is nothing to do.
    """

    file: Path
    node: str
    round: int
    shape: tuple[int, ...]
    scale: float
    shift: float
    prior: tuple[float, ...]
    preprocessing: Preprocessing | None = None
    target_scaling: TargetScaling | None = None


def export(
    run: Path | str,
    file: Path | str,
    *,
    node: str | int = "root",
    format: Format | None = None,
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
) -> Exported:
    """Write a node's model, or the model that a client uses, from a run's newest checkpoint.

    Args:
        run: The run folder.
        file: The file to write, or the folder of an adapter; by default its ending determines the
            format.
        node: `root`, the number of a node, or `client:3` for the model that client 3 uses;
            `client:cleveland` if it has that name.
        format: `safetensors` (a `state_dict`), `onnx`, or `peft` (an adapter).
        network: The function that creates the network, if one was passed to the run.
        method: The method, if an instance was passed to the run.
    """
    file, node = Path(file), str(node)
    kind = format_of(file, format)
    opened = open_run(Path(run), network, method)
    vector, prior = _find(opened.view, opened.serving, node)
    return opened.write(file, kind, node, vector, prior)


def predict(
    run: Path | str,
    x: ArrayLike | Table,
    *,
    node: str | int = "root",
    network: NetworkFactory | None = None,
    method: Method[Any] | None = None,
) -> NDArray[np.float32]:
    """The outputs of a node's model, or of the model that a client uses, for raw inputs.

    There is one row per input: a value per class before the softmax, or the values of a regression
    in the units of its targets.
    `x` is an array; if the run's data were tables, it may also be a table with the same columns.
    The other arguments are those of `export`.
    """
    opened = open_run(Path(run), network, method)
    vector, prior = _find(opened.view, opened.serving, str(node))
    return outputs_of(opened.whole(vector, prior), opened.check_inputs(x))


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The newest intact checkpoint of a run: its round, how to serve, the view, the network."""

    path: Path
    checkpoint: Path
    round: int
    serving: Serving
    view: View
    factory: NetworkFactory

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a raw input."""
        first = self.serving.preprocessing
        return self.serving.shape if first is None else first.shape

    def check_inputs(self, x: Any) -> NDArray[Any]:
        """Raw inputs, out of an array or out of a table, checked by shape."""
        return _inputs(x, self.shape, self.serving.preprocessing)

    def whole(self, vector: Vector, prior: tuple[float, ...]) -> Whole:
        """A network that takes raw inputs."""
        flat, serving = self._flat(vector), self.serving
        flat.load(vector)
        return Whole(
            flat.network, serving.scale, serving.shift, prior,
            serving.preprocessing, serving.target_scaling,
        )  # fmt: skip

    def write(
        self, file: Path, kind: Format, node: str, vector: Vector, prior: tuple[float, ...]
    ) -> Exported:
        """Write a model to a file."""
        serving = self.serving
        exported = Exported(
            file, node, self.round, self.shape, serving.scale, serving.shift, prior,
            serving.preprocessing, serving.target_scaling,
        )  # fmt: skip
        if kind == "onnx":
            write_bytes(file, _onnx(self.whole(vector, prior), exported))
        elif kind == "peft":
            flat = self._flat(vector)
            flat.load(vector)
            exported = replace(exported, prior=write_adapter(flat, file, prior))
        else:
            state = self._flat(vector).state_dict(vector)
            write_bytes(file, _safetensors(state, exported))
        return exported

    def _flat(self, vector: Vector) -> FlatNetwork:
        flat = FlatNetwork(build(self.factory, 0))
        try:
            check_size(vector, len(flat.vector))
        except ModelError as error:
            raise RunError(f"{self.path} was run with another network: {error}") from None
        return flat


def _inputs(x: Any, shape: tuple[int, ...], first: Preprocessing | None) -> NDArray[Any]:
    """An array of raw inputs, out of one or out of a table.

    Rows without names have the columns in the order of the run, as numbers or as words.
    """
    columns = () if first is None else first.columns
    if is_table(x) and columns:
        return raw_rows(x, columns)
    if is_table(x) and not hasattr(x, "__array__"):
        raise DataError(
            "the run knows no names of columns; pass its inputs as an array, in their order"
        )
    inputs = np.asarray(x)
    if columns and inputs.dtype.kind in "OUS" and inputs.shape[1:] == shape:
        named = {column.name: inputs[:, at] for at, column in enumerate(columns)}
        return raw_rows(named, columns)
    if inputs.dtype.kind not in "biuf":
        raise DataError(f"inputs must be numbers, got {inputs.dtype}")
    if inputs.shape[1:] != shape:
        wanted = ", ".join(["n", *map(str, shape)])
        raise DataError(f"inputs must have shape ({wanted}), got {inputs.shape}")
    return inputs


def format_of(file: Path, format: str | None = None) -> Format:
    """The format that is asked for, or else the one that a file's name has."""
    kind = format or file.suffix.removeprefix(".")
    if kind not in get_args(Format):
        known = "safetensors, onnx or peft"
        raise ConfigError(f"the format must be {known}, got {kind!r} for {file.name}")
    return kind  # type: ignore[return-value]


def open_run(path: Path, network: NetworkFactory | None, method: Method[Any] | None) -> OpenRun:
    """Open a run folder for serving; a network or method of the user's own must be given."""
    folder = RunFolder.open(path)
    config = parse_config(without_retired(read_values(folder.config_file)))
    for round in reversed(folder.saved_rounds()):
        file = folder.checkpoint(round)
        try:
            checkpoint.check_file(file)
            serving = checkpoint.load(file, "serving", Serving)
        except DamagedError:
            continue
        for name, given in (("network", network), ("method", method)):
            if name in serving.own and given is None:
                raise RunError(
                    f"{path} was run with your own {name}, which is not stored in the folder; "
                    f"export it from Python with sofa_fl.export(..., {name}=...)"
                )
        chosen: Method[Any] = make_method(config) if method is None else method
        view = chosen.view(checkpoint.load(file, "state", state_type(chosen)))
        factory = network or network_factory(config.model, serving.shape, serving.num_outputs)
        factory = with_frozen_of(path, factory)
        return OpenRun(path, file, round, serving, view, factory)
    raise RunError(f"{path} has no intact checkpoint to export a model from")


def _find(view: View, serving: Serving, node: str) -> tuple[Vector, tuple[float, ...]]:
    """The model that `node` names, and what to add to its outputs."""
    kind, colon, number = node.partition(":")
    client = _client(serving, number) if colon and kind == "client" else None
    if client is not None:
        if client not in serving.clients:
            few = ", ".join(map(str, (serving.names or serving.clients)[:8]))
            more = ", …" if len(serving.clients) > 8 else ""
            raise RunError(f"client {client} is not in the last round; its clients: {few}{more}")
        row = tuple(serving.priors[serving.clients.index(client)].tolist())
        used = {int(key): model for key, model in view.served.items()}
        return as_vector(used.get(client, view.models[view.tree.root])), row
    models = {int(key): model for key, model in view.models.items()}
    wanted = view.tree.root if node == "root" else int(node) if node.isdecimal() else None
    if wanted is None or wanted not in models:
        known = ", ".join(map(str, sorted(models)[-8:]))
        raise RunError(
            f"no node {node!r} has a model; use root, client:N for the model that client N uses, "
            f"or the number of a node ({'…, ' if len(models) > 8 else ''}{known})"
        )
    return as_vector(models[wanted]), ()


def _client(serving: Serving, text: str) -> int | None:
    """The client that a name or a number stands for; None if it is neither."""
    if text in serving.names:
        return serving.clients[serving.names.index(text)]
    return int(text) if text.isdecimal() else None


def _safetensors(state: dict[str, Tensor], exported: Exported) -> bytes:
    from safetensors.torch import save

    about = {
        "node": exported.node,
        "round": str(exported.round),
        "shape": json.dumps(exported.shape),
        "scale": repr(exported.scale),
        "shift": repr(exported.shift),
        "prior": json.dumps(exported.prior),
        "preprocessing": _json_or_null(exported.preprocessing),
        "target_scaling": _json_or_null(exported.target_scaling),
    }
    return save({name: tensor.contiguous() for name, tensor in state.items()}, about)


def _json_or_null(value: Preprocessing | TargetScaling | None) -> str:
    """Columns, categories, means and classes, or scales, for whoever opens the file."""
    return json.dumps(None if value is None else asdict(value))


def _onnx(network: nn.Module, exported: Exported) -> bytes:
    """Export with a variable batch size."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise RunError(f"{error.name} is not installed: pip install 'sofa-fl[onnx]'") from None
    network.eval()
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        with warnings.catch_warnings():  # all about the exporter's internals
            warnings.simplefilter("ignore")
            logger.setLevel(logging.ERROR)
            program = torch.onnx.export(
                network,
                (torch.zeros(2, *exported.shape),),
                dynamo=True,
                verbose=False,
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim("samples")},),
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    model = program.model_proto
    model.metadata_props.add(key="preprocessing", value=_json_or_null(exported.preprocessing))
    data: bytes = model.SerializeToString()
    return data
