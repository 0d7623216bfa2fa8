"""Asks for another machine: their models travel beside them, so that one of many is sent once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

import torch

from sofa_fl.data.base import Samples
from sofa_fl.engine.base import Pull, Task
from sofa_fl.engine.exams import Sitting
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, Model, as_vector

MAX_PARTS = 8  # a mix of more models than these is sent as the one model that it stands for
NOTHING: Vector = torch.empty(0)  # in place of a model that travels apart

T = TypeVar("T")
Ref = TypeVar("Ref")  # what a store of objects gives for something put into it


@dataclass(frozen=True, slots=True)
class Embedding:
    """An ask for the mean features of a model on these samples."""

    model: Model
    samples: Samples


Ask = Task | Sitting | Embedding


@dataclass(frozen=True, slots=True)
class Parts:
    """A model: which of the vectors that travel along, and by which weights they are mixed."""

    which: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Parcel:
    """An ask without its models, and what they are made of."""

    ask: Ask
    models: tuple[Parts, ...]


class Shelf(Generic[Ref]):
    """Vectors in a store of objects; one that is among the last used is not put there again."""

    def __init__(self, put: Callable[[Vector], Ref], limit: int) -> None:
        self._put, self._limit = put, limit
        # By where a vector is in memory, as long as it lives: then another may be there.
        self._kept: dict[int, tuple[weakref.ref[Vector], Ref]] = {}

    def __call__(self, vector: Vector) -> Ref:
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0]() is not None}
        kept = self._kept.pop(id(vector), None) or (weakref.ref(vector), self._put(vector))
        self._kept[id(vector)] = kept
        while len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]
        return kept[1]


def pack(asks: Sequence[Ask], put: Callable[[Vector], Ref]) -> tuple[list[Parcel], list[Ref]]:
    """The asks without models, and the vectors that go with them all."""
    found: dict[int, tuple[int, Vector]] = {}  # a vector is held so that its place stays its own
    refs: list[Ref] = []

    def number(vector: Vector) -> int:
        if id(vector) not in found:
            found[id(vector)] = len(refs), vector
            refs.append(put(vector))
        return found[id(vector)][0]

    def parts(model: Model) -> Parts:
        if isinstance(model, Mix) and len({id(vector) for vector in model.models}) > MAX_PARTS:
            model = as_vector(model)
        if isinstance(model, Mix):
            return Parts(tuple(map(number, model.models)), model.weights)
        return Parts((number(model),), (1.0,))

    parcels = []
    for ask in asks:
        models = models_of(ask)
        bare = with_models(ask, [NOTHING] * len(models))
        parcels.append(Parcel(bare, tuple(map(parts, models))))
    return parcels, refs


def unpack(parcels: Sequence[Parcel], vectors: Sequence[Vector]) -> list[Ask]:
    """The asks as they were."""
    return [
        with_models(
            parcel.ask,
            [Mix(tuple(vectors[i] for i in m.which), m.weights) for m in parcel.models],
        )
        for parcel in parcels
    ]


def models_of(ask: Ask) -> tuple[Model, ...]:
    """Every model that an ask names; `with_models` takes them in the same order."""
    if isinstance(ask, Task):
        return (ask.start, *(pull.target for pull in ask.pulls))
    return (ask.model,)


def with_models(ask: Ask, models: Sequence[Model]) -> Ask:
    if not isinstance(ask, Task):
        return replace(ask, model=models[0])
    pulls = [Pull(as_vector(m), pull.weight) for m, pull in zip(models[1:], ask.pulls)]
    return replace(ask, start=models[0], pulls=tuple(pulls))


def portions(asks: Iterable[T], size: int) -> Iterator[list[T]]:
    """`size` at a time, drawn when they are needed; the last has what is left."""
    coming = iter(asks)
    while portion := list(islice(coming, size)):
        yield portion
        del portion
