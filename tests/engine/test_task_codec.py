"""Requests are sent apart from their models: each model once, and every request arrives intact."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.engine.base import Exam, Pull, Task
from sofa_fl.engine.exams import Sitting
from sofa_fl.engine.learner import pull_terms
from sofa_fl.engine.ray_messages import (
    MAX_PARTS,
    RecentVectors,
    pack_requests,
    portions,
    unpack_requests,
)
from sofa_fl.engine.task_codec import MODEL_FIELD, Embedding, Request, decode, encode
from sofa_fl.errors import ModelError
from sofa_fl.models.flat import IdentityDict, Mix, Vector, as_vector
from tests.engine.cases import task

MODELS = [torch.full((5,), float(number)) for number in range(MAX_PARTS + 1)]
MIX = Mix((MODELS[1], MODELS[2], MODELS[1]), (0.5, 0.25, 0.25))
ROWS, PRIOR = np.arange(4), np.zeros(3, dtype=np.float32)
REQUESTS: list[Request] = [
    task(MIX, prior=PRIOR),
    replace(task(MODELS[1], 2), pulls=(Pull(MODELS[3], 0.1),)),
    Exam(MIX, ROWS, "test", PRIOR),
    Sitting(MIX, "test", (ROWS, ROWS[:2]), (0, 7), (None, PRIOR)),
    Embedding(MODELS[4], ROWS),
]


def send(requests: list[Request]) -> tuple[list[Any], list[Vector]]:
    """Pack and unpack; also the vectors that were sent."""
    message, vectors = pack_requests(requests, lambda vector: vector)
    return unpack_requests(message, vectors), vectors


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    (arrived,), _ = send([request_])
    assert type(arrived) is type(request_)
    for field in fields(request_):
        sent, got = getattr(request_, field.name), getattr(arrived, field.name)
        if field.name == MODEL_FIELD[type(request_)]:
            assert torch.equal(as_vector(sent), as_vector(got))
        elif field.name == "pulls":
            assert [pull.weight for pull in sent] == [pull.weight for pull in got]
            assert all(torch.equal(a.target, b.target) for a, b in zip(sent, got))
        else:
            np.testing.assert_equal(got, sent)


def test_a_header_holds_no_model() -> None:
    for request in REQUESTS:
        header = encode(request, lambda _model: "a name")
        assert header[MODEL_FIELD[type(request)]] == "a name"
        assert not any(isinstance(value, torch.Tensor | Mix) for value in header.values())


def test_a_model_is_sent_once() -> None:
    pulled = replace(task(MIX), pulls=(Pull(MODELS[1], 0.2),))
    _, vectors = send([pulled, task(MODELS[1]), task(MODELS[2]), task(MIX)])
    assert len(vectors) == 2, "two models, however often they are named"


weights = st.floats(1e-9, 1e6) | st.just(0.0)


@given(st.lists(weights, min_size=1, max_size=5), st.integers(0, 2**31))
def test_the_sum_of_pulls_is_the_same_to_the_bit(each: list[float], seed: int) -> None:
    """Whatever an engine computes of pulls, it computes of these two numbers."""
    rng = np.random.default_rng(seed)
    targets = [torch.from_numpy(rng.normal(size=5).astype(np.float32)) for _ in each]
    pulls = tuple(Pull(target, weight) for target, weight in zip(targets, each))
    (arrived,), vectors = send([replace(task(targets[0]), pulls=pulls)])
    assert len(vectors) == (1 if len(pulls) == 1 else 2), "a start, and one model for all pulls"
    decay, constant = pull_terms(pulls, targets[0])
    same_decay, same_constant = pull_terms(arrived.pulls, targets[0])
    assert same_decay == decay
    assert torch.equal(same_constant, constant)


def test_a_task_without_pulls_has_none() -> None:
    (arrived,), _ = send([task(MODELS[0])])
    assert arrived.pulls == ()


def test_pulls_to_models_of_two_sizes_are_refused() -> None:
    pulls = (Pull(MODELS[0], 0.1), Pull(torch.zeros(4), 0.1))
    with pytest.raises(ModelError, match="a vector of 4 numbers does not fit a network of 5"):
        encode(replace(task(MODELS[0]), pulls=pulls), id)


def test_a_header_with_a_field_too_few_is_no_request() -> None:
    header = encode(REQUESTS[0], lambda model: model)
    del header["seed"]
    with pytest.raises(TypeError, match="seed"):
        decode(Task, header, lambda model: model)


def test_a_mix_of_many_is_sent_as_one() -> None:
    few, many = MODELS[:MAX_PARTS], MODELS
    for models, num in ((few, MAX_PARTS), (many, 1), ([*few, *few], MAX_PARTS)):
        mix = Mix(tuple(models), tuple(1.0 for _ in models))
        (arrived,), vectors = send([task(mix)])
        assert len(vectors) == num
        assert torch.equal(as_vector(arrived.start), as_vector(mix))


def test_means_computed_for_sending_are_not_mistaken_for_each_other() -> None:
    """Each is gone when the next is computed, perhaps in the same memory."""
    mixes = [Mix(tuple(MODELS), tuple(w + k for w in range(len(MODELS)))) for k in range(1, 20)]
    arrived, vectors = send([task(mix) for mix in mixes])
    assert len(vectors) == len(mixes)
    for mix, one in zip(mixes, arrived, strict=True):
        assert torch.equal(as_vector(one.start), as_vector(mix))


def test_the_vectors_used_last_are_not_stored_again() -> None:
    put: list[float] = []

    def store(vector: Vector) -> int:
        put.append(float(vector[0]))
        return len(put)

    recent = RecentVectors(store, limit=2)
    refs = [recent(MODELS[i]) for i in (0, 1, 0, 2, 0, 1)]
    assert put == [0, 1, 2, 1]
    assert refs == [1, 2, 1, 3, 1, 4]


def test_a_new_vector_is_not_taken_for_one_that_is_gone() -> None:
    recent = RecentVectors(lambda vector: float(vector[0]), limit=100)
    for number in range(50):  # Python may give the id of the last vector to the next
        assert recent(torch.full((2,), float(number))) == number


def test_keys_are_found_by_identity() -> None:
    found: IdentityDict[int] = IdentityDict()
    found[MODELS[0]] = 1
    found[MODELS[0], "train", True] = 2
    found[MIX, None] = 3
    assert found[MODELS[0]] == found[Mix((MODELS[0],), (1.0,))] == 1
    assert found[MODELS[0], "train", True] == 2
    assert found[Mix(MIX.models, MIX.weights), None] == 3
    for key in (MODELS[0].clone(), (MODELS[0], "test", True), (MODELS[0], "train", False), MIX):
        assert key not in found
    assert [found.pop(key) for key in list(found)] == [1, 2, 3]


@pytest.mark.parametrize(("size", "expected"), [(2, [[0, 1], [2, 3], [4]]), (5, [[0, 1, 2, 3, 4]])])
def test_portions_are_of_one_size(size: int, expected: list[list[int]]) -> None:
    assert list(portions(iter(range(5)), size)) == expected
    assert list(portions([], size)) == []
