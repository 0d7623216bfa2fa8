"""Exams taken apart and put together again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.engine.base import Exam
from sofa_fl.engine.exams import gather, sittings
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.engine.workers import SITTING
from sofa_fl.models.mix import Mix, Model
from tests.engine.cases import DATA, ENGINES, LOCAL, MLP, EngineCase, running

MODELS = [torch.zeros(3), torch.ones(3)]
exams_of = st.lists(
    st.builds(
        lambda model, n, split: Exam(MODELS[model], np.arange(n), "test" if split else "train"),
        st.integers(0, 1),
        st.integers(0, 70),
        st.booleans(),
    ),
    max_size=9,
)


@given(exams_of, st.integers(1, 30))
def test_every_sample_of_every_exam_comes_once_and_in_order(exams: list[Exam], limit: int) -> None:
    asked = sittings(exams, limit)
    answers = [[np.stack([part, part], axis=1).astype(float) for part in s.sets] for s in asked]
    for exam, sums in zip(exams, gather(len(exams), asked, answers), strict=True):
        assert sums[:, 0].tolist() == exam.samples.tolist()
    for sitting in asked:
        assert 0 < sitting.num_samples <= limit
        for index, part in zip(sitting.exams, sitting.sets, strict=True):
            assert exams[index].params is sitting.model
            assert exams[index].split == sitting.split
            assert part[0] % limit == 0, "parts begin where batches do"


def test_a_model_goes_out_once_for_all_its_short_exams() -> None:
    one, other = MODELS
    half = (0.5, 0.5)
    mixes: list[Model] = [
        Mix((one, other), half),
        Mix((one, other), half),
        Mix((one,), (1.0,)),
        one,
    ]
    exams = [Exam(model, np.arange(4)) for model in mixes * 5]
    assert [sitting.num_samples for sitting in sittings(exams, 100)] == [40, 40]


@pytest.mark.parametrize("case", [case for case in ENGINES if not case.tolerance], ids=str)
def test_a_long_exam_is_spread_over_workers(case: EngineCase) -> None:
    """To the same bits as in one go."""
    rows = np.tile(np.arange(211), 12)
    assert len(rows) > 2 * SITTING
    with running(case) as engine:
        exams = [Exam(engine.initial(0), rows), Exam(engine.initial(1), rows[:130])]
        assert engine.evaluate(exams) == SequentialEngine(MLP, DATA, LOCAL).evaluate(exams)
