"""What SHAPE learns from clients, and how often it asks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sofa_fl.methods.rules.clusters import mean_of
from sofa_fl.methods.rules.losses import FederationEvidence
from sofa_fl.topology.clustering.default_splits import find_splits
from sofa_fl.topology.clustering.evidence import Question

from sofa_fl.engine.base import Exam, Score
from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Graft, apply_all
from sofa_fl.topology.space import Space
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy, federation

FED = federation(spy=True)  # three groups of three clients, each with a target of its own
CLIENTS = FED.clients
ROOT, A, B, C = map(NodeId, range(20, 24))
TREE = Tree(
    {ROOT: None, A: ROOT, B: ROOT, C: ROOT, **{c: (A, B, C)[c // 3] for c in CLIENTS}}, CLIENTS, 24
)
MODELS = {node: FED.initial(int(node)) for node in TREE.parent}


def spied() -> Spy:
    assert isinstance(FED.engine, Spy)
    FED.engine.exams.clear()
    return FED.engine


def evidence() -> FederationEvidence:
    positions = np.stack([np.asarray(MODELS[client]) for client in CLIENTS])
    space = Space(CLIENTS, positions, np.ones(len(CLIENTS)), "euclidean", "average")
    return FederationEvidence(TREE, space, MODELS, replace(FED, meter=type(FED.meter)()))


def test_nothing_is_asked_twice() -> None:
    seen, known = spied(), evidence()
    questions: list[Question] = [(NodeId(0), (A,)), (NodeId(1), (A, B)), (NodeId(0), (A,))]
    first = known.losses(questions)
    assert len(seen.exams) == 2
    np.testing.assert_array_equal(known.losses(questions), first)
    assert len(seen.exams) == 2
    known.losses([(NodeId(0), (B,))])
    assert len(seen.exams) == 3


def test_losses_with_training_samples_are_others() -> None:
    """A client with few held-out samples is asked on those that it trains on, too."""
    known = evidence()
    alone, both = (known.losses([(NodeId(0), (A,))], more=more) for more in (False, True))
    held, own = known.samples(NodeId(0)), FED.owned[NodeId(0)]
    trained = FED.held_out([(NodeId(0), MODELS[A])], samples=[own])[0].loss
    np.testing.assert_allclose(both, (held * alone + len(own) * trained) / (held + len(own)))


def test_both_kinds_of_samples_are_asked_for_in_one_exchange() -> None:
    seen, exchanges = spied(), list[list[int]]()

    def evaluate(exams: Sequence[Exam]) -> list[Score]:
        exchanges.append([len(exam.samples) for exam in exams])
        return Spy.evaluate(seen, exams)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "evaluate", evaluate)
        evidence().losses([(NodeId(0), (A,)), (NodeId(1), (B,))], more=True)
    sets = [FED.judged_on(NodeId(c)) for c in (0, 1)] + [FED.owned[NodeId(c)] for c in (0, 1)]
    assert exchanges == [[len(rows) for rows in sets]]


def test_no_more_training_samples_count_than_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    known, client = evidence(), NodeId(0)
    held, own = known.samples(client), FED.owned[client]
    monkeypatch.setattr("sofa_fl.methods.rules.losses.ENOUGH", held + 3)
    seen = spied()
    found = known.losses([(client, (A,))], more=True)
    assert [len(exam.samples) for exam in seen.exams] == [held, 3]
    some = seen.exams[1].samples
    assert some[0] == own[0]
    assert some[-1] == own[-1], "they are spread evenly"
    alone = FED.held_out([(client, MODELS[A])])[0].loss
    trained = FED.held_out([(client, MODELS[A])], samples=[some])[0].loss
    np.testing.assert_allclose(found, (held * alone + 3 * trained) / (held + 3))


def test_after_an_edit_means_are_asked_again_and_nodes_that_stay_are_not() -> None:
    known = evidence()
    known.losses([(NodeId(0), (A,)), (NodeId(0), (A, B))])
    moved = Graft(CLIENTS[0], B)
    after, seen = known.after(apply_all(TREE, [moved]), [moved]), spied()
    after.losses([(NodeId(0), (A,))])
    assert not seen.exams
    found = after.losses([(NodeId(0), (A, B))])
    assert len(seen.exams) == 1
    mean = mean_of((A, B), apply_all(TREE, [moved]), MODELS, FED)
    assert found[0] == FED.held_out([(NodeId(0), mean)])[0].loss


def test_all_splits_take_few_exchanges() -> None:
    """Not some for every cluster: in a deployment each one waits for all machines."""
    seen, calls = spied(), list[int]()

    def evaluate(exams: Sequence[Exam]) -> list[Score]:
        calls.append(len(exams))
        return Spy.evaluate(seen, exams)

    known = evidence()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "evaluate", evaluate)
        find_splits(TREE, known, ShapeConfig())
    assert len(calls) <= 2 + 1, "gains, then fits, then clients that nothing suits"
    assert torch.isfinite(torch.tensor(list(known.known.values()))).all()


def test_paths_and_what_is_foreseen_are_asked_about_in_one_exchange() -> None:
    """On held-out samples each question is asked once; the training samples are others."""
    seen, known = spied(), evidence()
    pairs = [(NodeId(0), ROOT), (NodeId(0), A), (NodeId(1), A)]
    found = known.path_losses(pairs, foreseen=[(NodeId(0), (A,)), (NodeId(2), (B,))])
    asked = [FED.judged_on(NodeId(c)) for c in (0, 0, 1, 2)]
    asked += [FED.owned[NodeId(c)] for c in (0, 2)]
    assert [exam.samples.tolist() for exam in seen.exams] == [rows.tolist() for rows in asked]
    again = evidence()
    assert found == again.losses([(client, (node,)) for client, node in pairs]).tolist()
    spied()
    more: list[Question] = [(NodeId(0), (A,)), (NodeId(2), (B,))]
    np.testing.assert_array_equal(known.losses(more, more=True), evidence().losses(more, more=True))
    spied()
    known.losses([*more, (NodeId(1), (A,))])
    known.losses(more, more=True)
    known.path_losses(pairs)
    assert not seen.exams, "all of it is known"


def test_what_was_not_answered_is_no_loss_of_a_path_and_a_large_one_for_shape() -> None:
    known = evidence()
    known.known[(NodeId(0), (A,)), False] = float("nan")
    (found,) = known.path_losses([(NodeId(0), A)])
    assert np.isnan(found)
    assert known.losses([(NodeId(0), (A,))]) > 1e29
    assert known.losses([(NodeId(0), (A,))], more=True) > 1e29
