"""Exams taken apart and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.engine import stacked
from sofa_fl.engine.base import Exam
from sofa_fl.engine.exams import Sitting, alike, gather, sittings, summed
from sofa_fl.engine.sequential import SITTING, SequentialEngine
from sofa_fl.models.flat import Mix, Model
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


@given(st.lists(st.integers(1, 500), max_size=40).map(sorted), st.integers(0, 2000))
def test_runs_of_similar_lengths_are_all_lengths_and_cut_where_it_pays(
    lengths: list[int], worth: int
) -> None:
    runs = alike(lengths, worth)
    assert [length for run in runs for length in lengths[run]] == lengths
    for run in runs:
        filled = lengths[run][-1]
        for at in range(1, len(lengths[run])):
            assert at * (filled - lengths[run][at - 1]) <= worth, "another cut would have paid"


def test_one_long_exam_does_not_make_the_short_ones_long() -> None:
    assert alike([5] * 53 + [250], 1024) == [slice(0, 53), slice(53, 54)]
    assert alike([5] * 3 + [250], 1024) == [slice(0, 4)], "few may be filled up"


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


def test_stacked_exams_of_any_lengths_score_as_they_do_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacked, "WORTH", 10)
    engine = stacked.StackedEngine(MLP, DATA, LOCAL, device="cpu")
    started: list[tuple[int, int]] = []
    monkeypatch.setattr(engine, "_started", counted(engine._started, started))
    lengths = [3, 90, 4, 60, 3, 61, 5]
    exams = [Exam(engine.initial(at), np.arange(n)) for at, n in enumerate(lengths)]
    alone = SequentialEngine(MLP, DATA, LOCAL).evaluate(exams)
    for score, same in zip(engine.evaluate(exams), alone, strict=True):
        assert score.loss == pytest.approx(same.loss, rel=1e-4)
        assert score.num_samples == same.num_samples
    assert started == [(4, 5), (2, 61), (1, 90)], "models at a time, and samples of each"


def counted(start: Any, started: list[tuple[int, int]]) -> Any:
    def call(asked: Sequence[Sitting]) -> Any:
        started.append((len(asked), max(sitting.num_samples for sitting in asked)))
        return start(asked)

    return call


@pytest.mark.parametrize("case", [case for case in ENGINES if not case.tolerance], ids=str)
def test_a_long_exam_is_spread_over_workers(case: EngineCase) -> None:
    """To the same bits as in one go."""
    rows = np.tile(np.arange(211), 12)
    assert len(rows) > 2 * SITTING
    with running(case) as engine:
        exams = [Exam(engine.initial(0), rows), Exam(engine.initial(1), rows[:130])]
        assert engine.evaluate(exams) == SequentialEngine(MLP, DATA, LOCAL).evaluate(exams)


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 5, 9, 130]), min_size=1, max_size=6), min_size=1),
    st.integers(0, 2**32 - 1),
)
def test_sets_are_summed_at_once_as_one_by_one(lengths: list[list[int]], seed: int) -> None:
    """To the bit: an exam must not score otherwise for what it was asked together with."""
    longest = max(map(sum, lengths))
    each = np.exp(5 * np.random.default_rng(seed).normal(size=(2, len(lengths) + 1, longest)))
    sets = [[np.zeros(length, dtype=np.int64) for length in row] for row in lengths]
    for own, found, row in zip(each.swapaxes(0, 1), summed(each, sets), lengths):
        ends = np.cumsum([0, *row])
        alone = [own[:, a:b].sum(axis=1) for a, b in pairwise(ends)]
        assert [sums.shape for sums in found] == [(1, 2)] * len(row)
        assert np.array_equal(np.concatenate(found), np.stack(alone))
