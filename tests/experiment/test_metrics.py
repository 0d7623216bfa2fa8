"""The fairness table on known numbers, and the accuracy of every level."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.data.federated_data import Arrays
from sofa_fl.errors import DataError
from sofa_fl.experiment.scoring.metrics import (
    Examiner,
    by_level,
    client_accuracies,
    fairness,
    full_accuracies,
    mean_curve,
    model_at,
)
from sofa_fl.federation import Federation
from sofa_fl.methods.method import View
from sofa_fl.models.flat import Mix, identity
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.engine.quadratic import quadratic_data
from tests.methods.cases import LOCAL, Spy


def test_known_numbers() -> None:
    table = fairness([0.9, 0.5, 1.0, 0.8])
    assert table["mean"] == pytest.approx(0.8)
    assert table["std"] == pytest.approx(math.sqrt((0.01 + 0.09 + 0.04 + 0) / 4))
    assert table["min"] == 0.5
    assert table["gap"] == 0.5
    assert table["jain"] == pytest.approx(3.2**2 / (4 * (0.81 + 0.25 + 1 + 0.64)))
    assert table["bottom10"] == 0.5


@pytest.mark.parametrize(("num_clients", "counted"), [(1, 1), (9, 1), (19, 1), (20, 2), (35, 3)])
def test_the_bottom_tenth_is_at_least_one_client(num_clients: int, counted: int) -> None:
    accuracies = np.linspace(0.1, 0.9, num_clients)
    expected = accuracies[:counted].mean()
    shuffled = np.random.default_rng(0).permutation(accuracies)
    assert fairness(shuffled.tolist())["bottom10"] == pytest.approx(expected)


def test_clients_without_test_samples_do_not_count() -> None:
    nan = float("nan")
    assert fairness([0.5, nan, 0.9, nan]) == fairness([0.9, 0.5])
    with pytest.raises(DataError, match="no client can be scored"):
        fairness([nan, nan])


def test_all_right_and_all_wrong() -> None:
    same = {"std": 0.0, "gap": 0.0, "jain": 1.0}
    assert fairness([1.0] * 4) == {**same, "mean": 1.0, "min": 1.0, "bottom10": 1.0}
    assert fairness([0.0] * 4) == {**same, "mean": 0.0, "min": 0.0, "bottom10": 0.0}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_ranges(accuracies: list[float]) -> None:
    table = fairness(accuracies)
    tiny = 1e-9
    assert table["min"] <= table["bottom10"] + tiny
    assert table["bottom10"] <= table["mean"] + tiny
    assert 0 <= table["std"] <= table["gap"] + tiny
    assert 1 / len(accuracies) - tiny <= table["jain"] <= 1 + tiny
    assert table == fairness(accuracies[::-1])


def test_one_served_well_and_all_others_not_is_least_fair() -> None:
    assert fairness([1.0, 0.0, 0.0, 0.0])["jain"] == pytest.approx(1 / 4)


# Clients 0 and 1 at one centre under a cluster, client 2 at another, beside them.
DATA, ENGINE = quadratic_data(np.array([[0.0, 0.0], [0.0, 0.0], [6.0, 0.0]]), noise=0.01)
FED = Federation(DATA, ENGINE, LOCAL)
LOW, ROOT = NodeId(3), NodeId(4)
PARENT: dict[NodeId, NodeId | None] = {ROOT: None, LOW: ROOT}
TREE = Tree(PARENT | dict(zip(FED.clients, (LOW, LOW, ROOT))), FED.clients, 5)
HERE, THERE, BETWEEN = torch.zeros(2), torch.tensor([6.0, 0.0]), torch.tensor([2.0, 0.0])
MODELS = {NodeId(0): HERE, NodeId(1): HERE, NodeId(2): THERE, LOW: HERE, ROOT: BETWEEN}


def test_every_client_is_scored_on_its_own_test_samples() -> None:
    served = {c: MODELS[c] for c in FED.clients}
    assert client_accuracies(served, Examiner(FED)) == pytest.approx([1, 1, 1], abs=0.01)
    swapped = {NodeId(0): THERE, NodeId(1): HERE, NodeId(2): HERE}
    assert client_accuracies(swapped, Examiner(FED)) == pytest.approx([1 / 37, 1, 1 / 37], abs=0.01)


def test_a_model_that_comes_twice_is_evaluated_once() -> None:
    spy = Spy(ENGINE)
    fed = Federation(DATA, spy, LOCAL)
    accuracies = full_accuracies([HERE, THERE, HERE, HERE], Examiner(fed))
    assert len(spy.exams) == 2
    assert accuracies[0] == accuracies[2] == accuracies[3] != accuracies[1]
    assert all(len(exam.samples) == len(DATA.test) and exam.split == "test" for exam in spy.exams)


def test_no_model_is_evaluated_twice_on_the_same_samples() -> None:
    """Neither within a summary nor after the round before it; blends are known by their parts."""
    spy = Spy(ENGINE)
    examiner = Examiner(Federation(DATA, spy, LOCAL))
    served = {c: Mix((MODELS[c], BETWEEN), (0.5, 0.5)) for c in FED.clients}
    first = client_accuracies(served, examiner)
    levels = by_level(View(tree=TREE, models=MODELS, served=served), examiner)
    keys = [(identity(exam.params), exam.samples.tobytes()) for exam in spy.exams]
    assert len(set(keys)) == len(keys)
    again = {c: Mix((MODELS[c], BETWEEN), (0.5, 0.5)) for c in FED.clients}
    assert client_accuracies(again, examiner) == first
    assert by_level(View(tree=TREE, models=MODELS, served=again), examiner) == levels
    assert len(spy.exams) == len(keys)
    examiner.turn_to(examiner.fed.at(1))
    assert client_accuracies(again, examiner) == first
    assert len(spy.exams) == len(keys) + len(FED.clients)


def test_levels_from_the_clients_up() -> None:
    levels = by_level(View(tree=TREE, models=MODELS, served=MODELS), Examiner(FED))
    assert [row["level"] for row in levels] == [0, 1, 2]
    assert [row["num_nodes"] for row in levels] == [3, 2, 1]  # client 2 stands for itself on 1
    assert levels[0]["client"] == pytest.approx(levels[1]["client"], abs=0.01)
    assert levels[2]["client"] == pytest.approx((1 / 5 + 1 / 5 + 1 / 17) / 3, abs=0.01)
    whole = full_accuracies([HERE, THERE, BETWEEN], Examiner(FED))
    assert levels[0]["full"] == pytest.approx((2 * whole[0] + whole[1]) / 3)
    assert levels[2]["full"] == pytest.approx(whole[2])


def test_clients_without_models_have_no_level() -> None:
    """A method without personal models; a client without a cluster of its own takes the root's."""
    models = {LOW: HERE, ROOT: BETWEEN}
    levels = by_level(View(tree=TREE, models=models, served=MODELS), Examiner(FED))
    assert [(row["level"], row["num_nodes"]) for row in levels] == [(1, 2), (2, 1)]
    assert model_at(TREE, models, NodeId(2), 1) == ROOT
    assert model_at(TREE, models, NodeId(0), 1) == LOW
    assert model_at(TREE, MODELS, NodeId(2), 1) == NodeId(2)


def test_one_client_alone_has_one_level() -> None:
    tree = flat_tree([NodeId(0)])
    data, engine = quadratic_data(np.zeros((1, 2)))
    view = View(tree=tree, models={NodeId(0): HERE}, served={NodeId(0): HERE})
    assert len(by_level(view, Examiner(Federation(data, engine, LOCAL)))) == 1


def test_curves_of_unequal_length() -> None:
    """A cascade trains clients deep in the tree in more and shorter parts."""
    curves = [np.array(c, dtype=np.float32) for c in ([1.0, 3.0], [2.0], [6.0, 5.0, 0.5])]
    assert mean_curve(curves) == [3.0, 4.0, 0.5]
    assert mean_curve([]) == []


def test_very_many_models_are_scored_on_a_fixed_part_of_the_test_set() -> None:
    size = 10_000
    arrays = Arrays(np.zeros((size, 2)), np.zeros(size))
    fed = replace(FED, data=replace(DATA, test=arrays))
    examiner = Examiner(fed)
    assert np.array_equal(examiner.test_set(50), np.arange(size))
    for num_models, num_samples in ((100, 5_000), (1_000, 500), (10**6, 200)):
        rows = examiner.test_set(num_models)
        assert len(np.unique(rows)) == len(rows) == num_samples
        assert np.array_equal(rows, Examiner(fed).test_set(num_models))
        assert examiner.test_set(num_models) is rows  # so that what was asked before is remembered
