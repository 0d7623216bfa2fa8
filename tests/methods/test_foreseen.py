"""Exams that are foreseen are set with others, and are known when they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sofa_fl.engine.ahead import Foreseen
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.losses import compare_losses
from sofa_fl.methods.rules.mixing import Mixing, foresee_mixtures, weigh_by_losses

from sofa_fl.engine.base import Exam, Score
from sofa_fl.federation import Federation
from sofa_fl.models.flat import Mix, Vector, as_vector
from sofa_fl.topology.tree import NodeId, Tree, flat_tree
from tests.methods.cases import federation

ROWS = [np.arange(3), np.arange(4)]
MODELS = torch.zeros(2), torch.ones(2)
FED = federation(spy=True)
FLAT = flat_tree(FED.clients, 20)
DEEP = FLAT.reparent({NodeId(30): FLAT.root, **dict.fromkeys(FED.clients[:2], NodeId(30))})


class Examinations:
    """Scores exams by the sum of a model, and remembers how many came at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, exams: Sequence[Exam]) -> list[Score]:
        self.sizes.append(len(exams))
        return [Score(float(as_vector(e.params).sum()), 0.0, len(e.samples)) for e in exams]


def half(a: float) -> Mix:
    return Mix(MODELS, (1 - a, a))


def test_what_is_foreseen_is_asked_once_and_with_what_comes_first() -> None:
    foreseen, evaluate = Foreseen(), Examinations()
    foreseen.add([Exam(half(0.5), ROWS[1]), Exam(half(0.25), ROWS[1])])
    assert foreseen.scored([], evaluate) == []
    assert evaluate.sizes == [], "nothing is asked for what is only foreseen"
    first = [Exam(MODELS[0], ROWS[0]), Exam(MODELS[0], ROWS[0])]
    assert foreseen.scored(first, evaluate) == [Score(0.0, 0.0, 3)] * 2
    assert evaluate.sizes == [2 + 2]
    later = [Exam(half(0.5), ROWS[1]), Exam(MODELS[1], ROWS[0]), Exam(half(0.25), ROWS[1])]
    assert [score.loss for score in foreseen.scored(later, evaluate)] == [1.0, 2.0, 0.5]
    assert evaluate.sizes == [4, 1]
    foreseen.scored([replace(later[0], samples=ROWS[0]), replace(later[0], max_loss=1.0)], evaluate)
    assert evaluate.sizes == [4, 1, 2], "the same model, and yet other exams"


def test_nothing_is_foreseen_where_answers_may_differ() -> None:
    fed, evaluate = replace(FED.at(1), lossy=True), Examinations()
    fed.foresee([(fed.clients[0], fed.initial())])
    fed.foreseen.scored([Exam(MODELS[0], ROWS[0])], evaluate)
    assert evaluate.sizes == [1]


def test_a_round_forgets_what_was_foreseen_before_it() -> None:
    fed, evaluate = FED.at(1), Examinations()
    fed.foresee([(fed.clients[0], fed.initial())])
    fed.at(2).foreseen.scored([Exam(MODELS[0], ROWS[0])], evaluate)
    assert evaluate.sizes == [1]


def test_a_client_alone_has_nothing_to_weigh() -> None:
    alone = flat_tree(FED.clients[:1])
    assert foresee_mixtures(alone, {alone.root: MODELS[0]}, alone.clients) == []


@pytest.mark.parametrize(("tree", "exchanges"), [(FLAT, (2, 1)), (DEEP, (3, 2))])
def test_the_roots_children_are_weighed_without_another_exchange(
    tree: Tree, exchanges: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those below clusters wait until it is known what these stand for."""
    rng, size = np.random.default_rng(0), len(FED.initial())
    models = {n: torch.from_numpy(rng.normal(size=size)).float() for n in tree.parent}
    plain, ahead = FED.at(1), FED.at(1)
    ahead.foresee(foresee_mixtures(tree, models, tree.clients[::2]))
    found = [weighed(tree, models, fed, monkeypatch) for fed in (plain, ahead)]
    assert found[0][0] == found[1][0]
    assert tuple(num for _, num in found) == exchanges


def weighed(
    tree: Tree, models: dict[NodeId, Vector], fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> tuple[Mixing, int]:
    """The mixing weights of half of the clients, and how many exchanges there were."""
    evaluate, num, asked = fed.engine.evaluate, 0, tree.clients[::2]

    def counted(exams: Sequence[Exam]) -> list[Score]:
        nonlocal num
        num += bool(exams)
        return evaluate(exams)

    with monkeypatch.context() as patch:
        patch.setattr(fed.engine, "evaluate", counted)
        losses = compare_losses(tree, models, fed, clients=asked)
        mixing = weigh_by_losses(tree, models, losses, Mixing(), asked, SofaConfig(), fed)
    return mixing, num
