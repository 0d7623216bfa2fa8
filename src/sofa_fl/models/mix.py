"""A weighted mean of models that is computed when somebody needs it.

A thousand clients may start from, or serve, a blend each; kept as what it is made of, a blend
costs nothing until an engine loads it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sofa_fl.models.flat import Vector, mean


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The mean of `models`, weighted by `weights`, not computed yet."""

    models: tuple[Vector, ...]
    weights: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        """The size of the one model that it stands for."""
        return self.models[0].nbytes


Model = Vector | Mix


def identity(model: Model) -> tuple[object, ...]:
    """The same for the same model, and for mixes of the same models by the same weights.

    It goes by where the models are in memory, so it holds as long as they live.
    """
    if not isinstance(model, Mix):
        return (id(model),)
    if len(model.models) == 1:
        return (id(model.models[0]),)
    return (*map(id, model.models), *model.weights)


def as_vector(model: Model) -> Vector:
    """The model as one vector; a mix is computed now, and a mix of one model is that model."""
    if not isinstance(model, Mix):
        return model
    if len(model.models) == 1:
        return model.models[0]
    return mean(model.models, model.weights)


def write(model: Model, out: Vector) -> None:
    """Put a model's numbers into memory that is there; the same bits as `as_vector` gives."""
    if isinstance(model, Mix) and len(model.models) > 1:
        mean(model.models, model.weights, out=out)
    else:
        out.copy_(as_vector(model))


V = TypeVar("V")


class IdentityDict(MutableMapping[Any, V]):
    """Values by the identity of a model, an array, or a tuple of such objects and plain values.

    Mixes of the same models by the same weights are one key. The dictionary holds its keys: Python
    gives the id of an object that is gone to another.
    """

    def __init__(self) -> None:
        self._entries: dict[object, tuple[Any, V]] = {}

    def __getitem__(self, key: Any) -> V:
        return self._entries[_id_of(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        self._entries[_id_of(key)] = key, value

    def __delitem__(self, key: Any) -> None:
        del self._entries[_id_of(key)]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def _id_of(key: Any) -> object:
    if isinstance(key, tuple):
        return tuple(_id_of(part) for part in key)
    if isinstance(key, str | bool):  # compared by value
        return key
    if isinstance(key, Mix):
        return identity(key)
    return (id(key),)
