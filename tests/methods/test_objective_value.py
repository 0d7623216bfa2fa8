"""The objective L: its value against the paper's sums, and clusters that minimize their terms."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Outcome
from sofa_fl.methods.sofa.averages import Update, mean_of_clients
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.paper import objective_value, regularized_mean
from sofa_fl.topology.tree import NodeId, Tree, value_at_level
from tests.methods.cases import federation

FED = federation(6)
ROOT, A, B, LOW = map(NodeId, (10, 11, 12, 13))
# The root has A, B and client 5; B has client 4 and LOW below it: three levels, uneven depth.
PARENT: dict[NodeId, NodeId | None] = {ROOT: None, A: ROOT, B: ROOT, LOW: B}
TREE = Tree(PARENT | dict(zip(FED.clients, (A, A, LOW, LOW, B, ROOT))), FED.clients, 14)
MODELS = {node: FED.initial(int(node)) for node in TREE.parent}
RNG = np.random.default_rng(0)
LOSSES = {c: {n: float(RNG.uniform(0.1, 3)) for n in TREE.path(c)} for c in TREE.clients}
UPDATES = {
    c: Update(MODELS[c], Outcome(MODELS[c], np.zeros(1, dtype=np.float32))) for c in TREE.clients
}
CONFIG = SofaConfig(pull_siblings=(0.2, 0.3, 0.5), pull_parent=(0.7, 1.1), clusters="regularized")
ALPHA, BETA = {1: 0.2, 2: 0.3, 3: 0.5}, {1: 0.7, 2: 1.1, 3: 1.1}


def squared(a: NodeId, b: NodeId) -> float:
    return float((MODELS[a].double() - MODELS[b].double()).square().sum())


def test_the_value_is_the_papers_three_sums() -> None:
    total = sum(FED.size(c) for c in TREE.clients)

    def size(node: NodeId) -> int:
        return sum(FED.size(c) for c in TREE.clients_of(node))

    def loss_of(node: NodeId) -> float:
        below = TREE.clients_of(node)
        return sum(FED.size(c) * LOSSES[c][node] for c in below) / size(node)

    loss = siblings = parent = 0.0
    for j in TREE.clusters:
        children = TREE.children[j]
        w_j = size(j) / total
        loss += w_j * sum(size(u) / size(j) * loss_of(u) for u in children)
        pairs = sum(squared(u, v) for u, v in combinations(children, 2))
        siblings += ALPHA[TREE.level[j]] / len(children) * pairs
        parent += BETA[TREE.level[j]] * sum(squared(u, j) for u in children)
    value = objective_value(TREE, MODELS, LOSSES, CONFIG, FED)
    assert value["loss"] == pytest.approx(loss)
    assert value["siblings"] == pytest.approx(siblings, rel=1e-5)
    assert value["parent"] == pytest.approx(parent, rel=1e-5)


def test_terms_without_weight_cost_nothing() -> None:
    config = SofaConfig(pull_siblings=0.0, pull_parent=0.0)
    value = objective_value(TREE, MODELS, LOSSES, config, FED)
    assert value["siblings"] == value["parent"] == 0
    assert value["loss"] > 0


@pytest.mark.parametrize("cluster", [A, B, LOW])
def test_a_regularized_cluster_minimizes_its_terms(cluster: NodeId) -> None:
    """Of ½‖x − m‖² + α/|C| Σ‖x − m_v‖² + β‖x − x_j‖², by the gradient written out."""
    means = mean_of_clients(TREE, UPDATES, CONFIG, FED)
    models = regularized_mean(TREE, UPDATES, CONFIG, FED)
    parent = TREE.parent[cluster]
    assert parent is not None
    level, children = TREE.level[parent], TREE.children[parent]
    x = models[cluster].double()
    gradient = x - means[cluster].double()
    for sibling in children:
        if sibling != cluster:
            gradient += 2 * ALPHA[level] / len(children) * (x - means[sibling].double())
    gradient += 2 * BETA[level] * (x - models[parent].double())
    assert float(gradient.abs().max()) < 1e-5
    assert not torch.allclose(models[cluster], means[cluster], atol=1e-3)


def test_the_root_and_the_clients_are_not_regularized() -> None:
    means = mean_of_clients(TREE, UPDATES, CONFIG, FED)
    models = regularized_mean(TREE, UPDATES, CONFIG, FED)
    for node in (ROOT, *TREE.clients):
        assert torch.equal(models[node], means[node])


def test_no_weights_leave_the_mean() -> None:
    config = SofaConfig(pull_siblings=0.0, pull_parent=0.0, clusters="regularized")
    means, models = (f(TREE, UPDATES, config, FED) for f in (mean_of_clients, regularized_mean))
    assert all(torch.equal(models[node], means[node]) for node in means)


def test_weights_go_by_level_and_the_last_one_goes_on() -> None:
    config = SofaConfig(pull_siblings=(0.1, 0.2), pull_parent=0.3)
    alpha, beta = config.pull_siblings, config.pull_parent
    assert [value_at_level(alpha, level) for level in (0, 1, 2, 3)] == [0.1, 0.1, 0.2, 0.2]
    assert [value_at_level(beta, level) for level in (0, 1, 5)] == [0.3, 0.3, 0.3]
    assert value_at_level((), 1) == 0
