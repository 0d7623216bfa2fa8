"""From raw rows to what a network sees: blanks, categories, standardized inputs.

It is fitted on training samples, kept with the data and in exported models, which take raw rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        values: The values of a category, each of which becomes an input that is 1 or 0. A blank
            and any other value are 0 in all of them. Empty for a column of numbers.
        words: The values of a category of text; a raw row then holds the position of one.
    """

    name: str
    values: tuple[float, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How a raw row is preprocessed before a network gets it.

    Attributes:
        shape: The shape of a raw row.
        columns: The columns of a table, in the order of a raw row; empty for other inputs.
        mean: The mean of every input, in one dimension; a blank number (NaN) is replaced by its
            mean.
        std: The standard deviation of every input, for standardizing; empty if inputs are not
            standardized.
        classes: The class names of the outputs, if the targets are text.
        target: The target column of a table, or the comparison that makes two classes of it.
        unused: The other columns of the tables, which are neither inputs nor the target.
    """

    shape: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    target: str = ""
    unused: tuple[str, ...] = ()

    def apply(self, raw: NDArray[Any]) -> NDArray[np.float32]:
        """The inputs of raw rows, in float32."""
        inputs = expand_categories(self.columns, raw)
        mean = np.reshape(self.mean, inputs.shape[1:])
        filled = np.where(np.isnan(inputs), mean, inputs)
        if not self.std:
            return filled.astype(np.float32)
        standard: NDArray[Any] = (filled - mean) / np.reshape(self.std, mean.shape)
        return standard.astype(np.float32)


@dataclass(frozen=True, slots=True)
class TargetScaling:
    """How the targets of a regression are scaled for training.

    Attributes:
        mean: The mean of every target value.
        std: Its standard deviation.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, targets: NDArray[Any]) -> NDArray[np.float32]:
        """Targets as a network is trained on them."""
        flat = targets.reshape(len(targets), -1).astype(np.float64)
        scaled = (flat - self.mean) / self.std
        return scaled.astype(np.float32).reshape(targets.shape)

    def undo(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Targets, or a network's outputs, in the units of the targets."""
        flat = values.reshape(len(values), -1).astype(np.float64)
        raw = flat * self.std + self.mean
        return raw.astype(np.float32).reshape(values.shape)


def fit_targets(train: NDArray[Any]) -> TargetScaling:
    """Mean and standard deviation of training targets; one that never varies is divided by 1."""
    flat = train.reshape(len(train), -1).astype(np.float64)
    std = np.where((flat == flat[:1]).all(axis=0), 1.0, flat.std(axis=0))
    return TargetScaling(tuple(flat.mean(axis=0).tolist()), tuple(std.tolist()))


def fit_preprocessing(
    train: NDArray[Any],
    *,
    columns: Sequence[Column] = (),
    standardize: bool,
    classes: Sequence[str] = (),
    target: str = "",
    unused: Sequence[str] = (),
) -> Preprocessing:
    """Mean and standard deviation of training rows, without blanks.

    An input that is always blank has mean 0; one that never varies is divided by 1.
    """
    inputs = expand_categories(columns, train).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of a column of blanks
        mean = np.nan_to_num(np.nanmean(inputs, axis=0))
    std = np.where(np.isnan(inputs), mean, inputs).std(axis=0)
    std[std == 0] = 1.0
    return Preprocessing(
        tuple(train.shape[1:]),
        tuple(columns),
        tuple(mean.ravel().tolist()),
        tuple(std.ravel().tolist()) if standardize else (),
        tuple(classes),
        target,
        tuple(unused),
    )


def expand_categories(columns: Sequence[Column], raw: NDArray[Any]) -> NDArray[Any]:
    """Replace every category by an input per value; without columns, nothing changes."""
    if not columns:
        return raw
    parts = [
        raw[:, at : at + 1] == np.array(column.values, dtype=np.float32)
        if column.values
        else raw[:, at : at + 1]
        for at, column in enumerate(columns)
    ]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)
