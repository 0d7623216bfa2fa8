"""Requests for Ray workers: one message for several, with the vectors of their models beside it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from sofa_fl.engine.task_codec import Header, Request, decode, encode
from sofa_fl.models.flat import IdentityDict, Mix, Model, Vector, as_vector

MAX_PARTS = 8  # a mix of more models than these is sent as the one model that it stands for

T = TypeVar("T")
Ref = TypeVar("Ref")  # what an object store returns for something put into it


@dataclass(frozen=True, slots=True)
class RayMessage:
    """Requests of one kind, whose models are names: pairs of a vector's number and its weight."""

    kind: type[Request]
    headers: tuple[Header, ...]


class RecentVectors(Generic[Ref]):
    """Vectors in an object store; the last `limit` used are not put there again.

    It does not hold the vectors, as an `IdentityDict` would: a model is freed with its last task.
    """

    def __init__(self, put: Callable[[Vector], Ref], limit: int) -> None:
        self._put, self._limit = put, limit
        self._stored: dict[int, tuple[weakref.ref[Vector], Ref]] = {}  # by id, the last used last

    def __call__(self, vector: Vector) -> Ref:
        # Python gives the id of a vector that is gone to another.
        alive = {key: stored for key, stored in self._stored.items() if stored[0]() is not None}
        stored = alive.pop(id(vector), None) or (weakref.ref(vector), self._put(vector))
        self._stored = dict([*alive.items(), (id(vector), stored)][-self._limit :])
        return stored[1]


def pack_requests(
    requests: Sequence[Request], put: Callable[[Vector], Ref]
) -> tuple[RayMessage, list[Ref]]:
    """Requests of one kind as a message, and the stored vectors that go with it."""
    numbers: IdentityDict[int] = IdentityDict()
    refs: list[Ref] = []

    def number(vector: Vector) -> int:
        if vector not in numbers:
            numbers[vector] = len(refs)
            refs.append(put(vector))
        return numbers[vector]

    def name(model: Model) -> list[tuple[int, float]]:
        if isinstance(model, Mix) and len(set(map(id, model.models))) > MAX_PARTS:
            model = as_vector(model)
        mix = model if isinstance(model, Mix) else Mix((model,), (1.0,))
        return [(number(vector), weight) for vector, weight in zip(mix.models, mix.weights)]

    headers = tuple(encode(request, name) for request in requests)
    return RayMessage(type(requests[0]), headers), refs


def unpack_requests(message: RayMessage, vectors: Sequence[Vector]) -> list[Any]:
    """The requests as they were."""

    def find(name: Sequence[tuple[int, float]]) -> Model:
        numbers, weights = zip(*name)
        return Mix(tuple(vectors[i] for i in numbers), weights)

    return [decode(message.kind, header, find) for header in message.headers]


def portions(requests: Iterable[T], size: int) -> Iterator[list[T]]:
    """`size` requests at a time, drawn when they are needed; the last portion may be smaller."""
    coming = iter(requests)
    while portion := list(islice(coming, size)):
        yield portion
        del portion
