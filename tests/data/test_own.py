"""A user's own arrays and datasets: what is taken, and what is refused with which advice."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sofa_fl.data
from sofa_fl.data.own import from_arrays, from_dataset
from sofa_fl.errors import DataError

X = np.arange(12).reshape(3, 4)


def test_types_that_engines_expect() -> None:
    labelled = from_arrays(X, [2, 0, 1], scale=2.0, shift=1.0)
    assert (labelled.x.dtype.name, labelled.y.dtype.name) == ("float32", "int64")
    assert (labelled.num_classes, labelled.scale, labelled.shift) == (3, 2.0, 1.0)
    images = from_arrays(X.astype(np.uint8), [True, False, True])
    assert (images.x.dtype.name, images.y.tolist()) == ("uint8", [1, 0, 1])
    regression = from_arrays(X.astype(np.float64), np.ones((3, 2)))
    assert (regression.x.dtype.name, regression.y.dtype.name) == ("float32", "float32")
    assert regression.y.shape == (3, 2)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, [0, 1], "3 inputs do not match 2 targets"),
        (X, [0, -1, 2], "at least 0, got -1"),
        (X, [[0], [1], [2]], r"shape \(n,\), got \(3, 1\)"),
        (X, np.zeros((3, 1, 1)), r"\(n, outputs\), got \(3, 1, 1\)"),
        (X, ["a", "b", "c"], "targets must be integers or floats"),
        (X, [0.0, np.nan, 1.0], "targets must be finite"),
        (np.full((3, 2), np.inf), [0, 1, 2], "inputs must be finite"),
        (X[:, 0], [0, 1, 2], r"reshape single numbers to \(n, 1\)"),
        (X[:0], [], "every dimension at least 1"),
        ([[1, 2], [3]], [0, 1], "inputs cannot be converted to an array"),
        (X.astype(complex), [0, 1, 2], "got complex128"),
    ],
)
def test_refused(x: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(x, y)


def test_torch_dataset() -> None:
    images = torch.arange(24, dtype=torch.uint8).reshape(3, 1, 2, 4)
    arrays = from_dataset(torch.utils.data.TensorDataset(images, torch.tensor([1, 0, 1])))
    np.testing.assert_array_equal(arrays.x, images.numpy())
    assert (arrays.x.dtype.name, arrays.y.tolist()) == ("uint8", [1, 0, 1])


def test_plain_list_is_a_dataset() -> None:
    arrays = from_dataset([([1.0, 2.0], 0.5), ([3.0, 4.0], 1.5)])
    assert (arrays.y.dtype.name, arrays.y.tolist()) == ("float32", [0.5, 1.5])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "at least one item"),
        ([np.zeros(2)], r"item 0 is ndarray"),
        ([(1, 2, 3)], r"item 0 is tuple"),
        ([([0, 0], 0), ([0], 1)], r"the same shape, got \(1,\) and \(2,\)"),
        (
            [(torch.zeros(2, requires_grad=True), 0)],
            "the input of item 0 cannot be converted to an array",
        ),
    ],
)
def test_refused_datasets(items: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_dataset(items)


def test_the_layer_imports_neither_torch_nor_layers_above() -> None:
    allowed = {"sofa_fl.data", "sofa_fl.errors", "sofa_fl.seeding"}
    for path in Path(sofa_fl.data.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in {"torch", "pydantic", "pickle"}, path
                if name.startswith("sofa_fl"):
                    assert ".".join(name.split(".")[:2]) in allowed, path
