"""How much every node keeps of its own model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import Models
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.mixing import (
    WEIGHTS,
    Mixing,
    after_moves,
    levels,
    mixture,
    own_models,
    steadied,
    weigh_by_losses,
)
from sofa_fl.methods.sofa.paper import compare_losses
from sofa_fl.models.flat import Mix, as_vector
from sofa_fl.topology.edits import Graft, Leave, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy, federation, in_units
from tests.topology.strategies import ids, node, tree_of

# Three groups of three clients, each with a target of its own; a model of zeros loses less.
FED = in_units(federation(spy=True), blind_loss=100.0)
CLIENTS = FED.clients
ROOT, A, B, C = map(NodeId, range(20, 24))
TREE = Tree(
    {ROOT: None, A: ROOT, B: ROOT, C: ROOT, **{c: (A, B, C)[c // 3] for c in CLIENTS}}, CLIENTS, 24
)
CONFIG = SofaConfig(steadiness=0.0)


def weigh(
    tree: Tree,
    models: Models,
    before: Mixing,
    asked: Collection[NodeId],
    config: SofaConfig,
    fed: Federation = FED,
) -> Mixing:
    """By the losses of `models`, which are known before."""
    losses = compare_losses(tree, models, replace(fed, meter=type(fed.meter)()))
    return weigh_by_losses(tree, models, losses, before, asked, config, fed)


def targets() -> dict[NodeId, torch.Tensor]:
    """For every client the model that loses least: the mean of its held-out points."""
    rows = {c: FED.data.train.x[FED.judged_on(c)] for c in CLIENTS}
    return {c: torch.from_numpy(x.mean(axis=0)).float() for c, x in rows.items()}


def held_out_loss(client: NodeId, model: torch.Tensor) -> float:
    points = torch.from_numpy(FED.data.train.x[FED.judged_on(client)])
    return float((points - model).square().sum(dim=1).mean())


def test_a_client_keeps_its_own_model_where_that_is_best() -> None:
    best = targets()
    models = {node: torch.zeros_like(best[NodeId(0)]) for node in TREE.parent}
    models |= {A: best[NodeId(0)], NodeId(0): best[NodeId(0)] + 100, NodeId(3): best[NodeId(3)]}
    found = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    assert found.weights[NodeId(0)] == 0, "its parent has what it needs"
    assert found.weights[NodeId(3)] == 1
    assert set(found.weights) == set(TREE.parent) - {ROOT}
    assert not found.missed


def test_weights_are_those_of_the_mixture_that_loses_least() -> None:
    rng = np.random.default_rng(3)
    models = {
        node: torch.from_numpy(rng.normal(size=len(FED.initial()))).float() for node in TREE.parent
    }
    found = weigh(TREE, models, Mixing(), CLIENTS, CONFIG)
    root = models[ROOT]
    for cluster in (A, B, C):
        below = TREE.clients_of(cluster)
        sums = {
            a: sum(held_out_loss(c, as_vector(mixture(root, models[cluster], a))) for c in below)
            for a in WEIGHTS
        }
        assert found.weights[cluster] == min(sums, key=lambda a: sums[a])
        parent = as_vector(mixture(root, models[cluster], found.weights[cluster]))
        for client in below:
            losses = {
                a: held_out_loss(client, as_vector(mixture(parent, models[client], a)))
                for a in WEIGHTS
            }
            assert found.weights[client] == min(losses, key=lambda a: losses[a])


def test_who_was_not_asked_keeps_what_it_has_and_is_counted() -> None:
    models = {node: FED.initial(int(node)) for node in TREE.parent}
    before = Mixing({NodeId(0): 0.5, A: 0.25}, {NodeId(0): 2, NodeId(3): 7})
    found = weigh(TREE, models, before, CLIENTS[3:], CONFIG)
    assert found.weights[NodeId(0)] == 0.5
    assert found.weights[A] == 0.25
    assert found.weights[NodeId(1)] == 1.0, "a client of which nothing is known"
    assert found.missed == {NodeId(0): 3, NodeId(1): 1, NodeId(2): 1}, "client 3 was asked"


def test_in_every_round_a_client_keeps_the_same_part_of_what_sets_it_apart() -> None:
    """Whether it trains or not; who keeps everything, or nothing, goes on doing so."""
    mixing = Mixing({NodeId(0): 0.5, NodeId(1): 1.0, A: 0.25, B: 0.0}, {NodeId(0): 2, NodeId(1): 9})
    kept = [mixing.of(node) for node in (NodeId(0), NodeId(1), A, B, C)]
    assert kept == [0.125, 1.0, 0.25, 0.0, 1.0]


def test_a_client_that_moved_stands_for_its_new_parent() -> None:
    before = Mixing(dict.fromkeys(TREE.parent, 0.5), {NodeId(0): 1, NodeId(3): 2, NodeId(6): 3})
    after = apply_all(TREE, [Graft(CLIENTS[0], B), Leave(CLIENTS[6])])
    found = after_moves(before, TREE, after)
    assert found.weights[CLIENTS[0]] == 0.0
    assert found.weights[CLIENTS[3]] == found.weights[A] == 0.5
    assert set(found.weights) == set(after.parent)
    assert found.missed == {NodeId(0): 1, NodeId(3): 2}


def test_few_samples_follow_the_siblings() -> None:
    """Client 0 is the odd one of three siblings; its own held-out samples are outnumbered."""
    best = targets()
    models = {node: torch.zeros_like(best[NodeId(0)]) for node in TREE.parent}
    models |= dict.fromkeys(CLIENTS[:3], best[NodeId(0)] + 50)
    models[A] = best[NodeId(1)]
    models[NodeId(0)] = best[NodeId(0)]
    models[A] = models[A] + 5
    alone = weigh(TREE, models, Mixing(), CLIENTS, CONFIG).weights
    steady = weigh(TREE, models, Mixing(), CLIENTS, replace(CONFIG, steadiness=1e9)).weights
    assert [alone[c] for c in CLIENTS[:3]] == [1.0, 0.0, 0.0]
    assert len({steady[c] for c in CLIENTS[:3]}) == 1


def test_losses_are_steadied_by_those_of_siblings() -> None:
    losses, counts = np.array([[1.0, 4.0], [3.0, 0.0]]), np.array([10.0, 30.0])
    mean = np.array([2.5, 1.0])
    found = steadied(losses, counts, 30.0)
    np.testing.assert_allclose(found[0], 0.25 * losses[0] + 0.75 * mean)
    np.testing.assert_allclose(found[1], 0.5 * losses[1] + 0.5 * mean)
    np.testing.assert_allclose(steadied(losses, counts, 0.0), losses)


def test_mixtures_cost_no_bytes_and_the_paper_asks_nothing() -> None:
    assert isinstance(FED.engine, Spy)
    fed = replace(FED, meter=type(FED.meter)())
    models = {node: FED.initial(int(node)) for node in TREE.parent}
    weigh(TREE, models, Mixing(), CLIENTS, CONFIG, fed)
    assert fed.meter.bytes_down == 0
    FED.engine.exams.clear()
    found = own_models(TREE, models, {}, Mixing(), CLIENTS, CONFIG, fed)
    assert not FED.engine.exams
    assert set(found.weights.values()) == {1.0}


def test_a_mixture_of_one_is_that_one() -> None:
    parent, own = torch.zeros(2), torch.ones(2)
    assert mixture(parent, own, 0.0) is parent
    assert mixture(parent, own, 1.0) is own
    both = mixture(parent, own, 0.25)
    assert isinstance(both, Mix)
    assert both.weights == (0.75, 0.25)


# 5 ── 6 ── 7 ── 0, 1
#   │     └─ 2
#   └─ 8 ── 3, 4
DEEP = tree_of([[[0, 1], 2], [3, 4]])


def test_clusters_by_depth() -> None:
    top, low = [c for c in DEEP.clusters if DEEP.parent[c] == DEEP.root], DEEP.parent[node(0)]
    assert levels(DEEP) == [dict.fromkeys(top, DEEP.root), {low: DEEP.parent[node(2)]}]
    assert levels(tree_of([0, 1])) == []


def test_own_models_stand_alone() -> None:
    assert own_models(DEEP) == Mixing(dict.fromkeys(DEEP.parent, 1.0))


def by_value(targets: dict[int, float], sizes: dict[int, int]) -> Any:
    """A model is one number, and loses for a client the squared distance to its target."""

    def held_out(asks: Sequence[tuple[NodeId, Any]], *, sent: bool) -> list[Any]:
        values = [
            float(np.average([float(m) for m in model.models], weights=model.weights))
            for _, model in asks
        ]
        return [
            SimpleNamespace(loss=(value - targets[client]) ** 2)
            for (client, _), value in zip(asks, values)
        ]

    return SimpleNamespace(held_out=held_out, judged_on=lambda client: range(sizes.get(client, 1)))


@pytest.mark.parametrize(("sizes", "weight"), [({0: 1, 1: 99}, 1.0), ({0: 99, 1: 1}, 0.0)])
def test_a_cluster_goes_by_samples(sizes: dict[int, int], weight: float) -> None:
    """The root's model suits client 0, the cluster's client 1."""
    tree = tree_of([[0, 1], 2])
    (cluster,) = (c for c in tree.clusters if c != tree.root)
    targets = {0: 0.0, 1: 1.0, 2: 0.0}
    values = {tree.root: 0.0, cluster: 1.0, node(0): 0.0, node(1): 1.0, node(2): 0.0}
    models = {each: torch.tensor([value]) for each, value in values.items()}
    losses = {c: {n: (values[n] - targets[c]) ** 2 for n in tree.path(c)} for c in tree.clients}
    fed = by_value(targets, sizes)
    found = weigh_by_losses(tree, models, losses, Mixing(), ids(0, 1), CONFIG, fed)
    assert found.weights[cluster] == weight
    assert found.weights[node(2)] == 1.0, "was never asked"
