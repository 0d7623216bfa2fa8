"""Models travel apart from what asks for them: each once, and all arrive as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Pull, Task
from sofa_fl.engine.exams import Sitting
from sofa_fl.engine.parcels import MAX_PARTS, Ask, Embedding, Shelf, pack, portions, unpack
from sofa_fl.models.flat import Vector
from sofa_fl.models.mix import Mix, as_vector
from tests.engine.cases import task

MODELS = [torch.full((5,), float(number)) for number in range(MAX_PARTS + 1)]


def there_and_back(asks: list[Ask]) -> tuple[list[Ask], list[Vector]]:
    parcels, vectors = pack(asks, lambda vector: vector)
    for parcel in parcels:
        assert not any(len(as_vector(model)) for model in models_in(parcel.ask))
    return unpack(parcels, vectors), vectors


def models_in(ask: Ask) -> list[Vector | Mix]:
    if isinstance(ask, Task):
        return [ask.start, *(pull.target for pull in ask.pulls)]
    return [ask.model]


def test_what_arrives_is_what_was_sent() -> None:
    mix = Mix((MODELS[1], MODELS[2], MODELS[1]), (0.5, 0.25, 0.25))
    rows, prior = np.arange(4), np.zeros(3, dtype=np.float32)
    pulled = replace(task(mix, prior=prior), pulls=(Pull(MODELS[3], 0.1), Pull(MODELS[1], 0.2)))
    asks: list[Ask] = [
        pulled,
        task(MODELS[1], 2),
        Sitting(mix, "test", (rows, rows[:2]), (0, 7), (None, prior)),
        Embedding(MODELS[4], rows),
    ]
    arrived, vectors = there_and_back(asks)
    assert len(vectors) == 4, "four models, however often they are named"
    for sent, got in zip(asks, arrived, strict=True):
        for one, other in zip(models_in(sent), models_in(got), strict=True):
            assert torch.equal(as_vector(one), as_vector(other))
    back = arrived[0]
    assert isinstance(back, Task)
    assert [pull.weight for pull in back.pulls] == [0.1, 0.2]
    assert (back.site, back.batches, back.seed, back.pace) == (0, 6, 7, 1.0)
    np.testing.assert_array_equal(back.samples, pulled.samples)
    sitting = arrived[2]
    assert isinstance(sitting, Sitting)
    assert (sitting.split, sitting.exams, sitting.priors[0]) == ("test", (0, 7), None)


def test_a_mix_of_many_is_sent_as_one() -> None:
    few, many = MODELS[:MAX_PARTS], MODELS
    for models, num in ((few, MAX_PARTS), (many, 1), ([*few, *few], MAX_PARTS)):
        mix = Mix(tuple(models), tuple(1.0 for _ in models))
        (ask,), vectors = there_and_back([task(mix)])
        assert isinstance(ask, Task)
        assert len(vectors) == num
        assert torch.equal(as_vector(ask.start), as_vector(mix))


def test_means_made_for_sending_are_not_mistaken_for_each_other() -> None:
    """Each is gone when the next is made, perhaps in the same place."""
    mixes = [Mix(tuple(MODELS), tuple(w + k for w in range(len(MODELS)))) for k in range(1, 20)]
    arrived, vectors = there_and_back([task(mix) for mix in mixes])
    assert len(vectors) == len(mixes)
    for mix, ask in zip(mixes, arrived, strict=True):
        assert torch.equal(as_vector(models_in(ask)[0]), as_vector(mix))


def test_a_shelf_keeps_what_was_used_last() -> None:
    put: list[float] = []

    def store(vector: Vector) -> int:
        put.append(float(vector[0]))
        return len(put)

    shelf = Shelf(store, limit=2)
    refs = [shelf(MODELS[i]) for i in (0, 1, 0, 2, 0, 1)]
    assert put == [0, 1, 2, 1]
    assert refs == [1, 2, 1, 3, 1, 4]


def test_a_shelf_does_not_take_a_new_vector_for_one_that_is_gone() -> None:
    shelf = Shelf(lambda vector: float(vector[0]), limit=100)
    for number in range(50):  # Python gives the place of the last to the next
        assert shelf(torch.full((2,), float(number))) == number


@pytest.mark.parametrize(("size", "expected"), [(2, [[0, 1], [2, 3], [4]]), (5, [[0, 1, 2, 3, 4]])])
def test_portions_are_of_one_size(size: int, expected: list[list[int]]) -> None:
    assert list(portions(iter(range(5)), size)) == expected
    assert list(portions([], size)) == []
