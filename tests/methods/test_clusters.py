"""Models on a tree: what new nodes inherit, what is measured, whom to trust."""

from __future__ import annotations

import numpy as np
import torch

from sofa_fl.methods.sofa.averages import inherit, mean_of, means_up
from sofa_fl.methods.sofa.paper import trained_on_pools
from sofa_fl.models.flat import Vector, mean
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import Spy, federation

FED = federation(6, spy=True)
CLIENTS = FED.clients
ROOT, A, B, C = map(NodeId, (10, 11, 12, 13))
PARENT: dict[NodeId, NodeId | None] = {ROOT: None, A: ROOT, B: ROOT, C: ROOT}
TREE = Tree(PARENT | dict(zip(CLIENTS, (A, A, B, B, B, C))), CLIENTS, 14)
MODELS: dict[NodeId, Vector] = {n: FED.initial(int(n)) for n in TREE.parent}


def of_clients(clients: list[int]) -> Vector:
    nodes = [NodeId(c) for c in clients]
    return mean([MODELS[c] for c in nodes], [len(FED.owned[c]) for c in nodes])


def inherited(*edits: Edit) -> dict[NodeId, Vector]:
    models = inherit(TREE, MODELS, edits, FED)
    after = apply_all(TREE, edits)
    assert set(models) == set(after.parent)
    for node in set(models) & set(MODELS):
        assert torch.equal(models[node], MODELS[node]), "no model of a node that stays is changed"
    return models


def test_no_edit_changes_nothing() -> None:
    assert list(inherited()) == list(MODELS)


def test_graft_moves_a_node_and_no_model() -> None:
    assert set(inherited(Graft(CLIENTS[0], B))) == set(MODELS)


def test_merge_is_the_mean_of_those_merged_by_samples_below() -> None:
    models = inherited(Merge((A, B), NodeId(14)))
    sizes = {c: len(FED.owned[c]) for c in CLIENTS}
    below = [sum(sizes[c] for c in CLIENTS[:2]), sum(sizes[c] for c in CLIENTS[2:5])]
    torch.testing.assert_close(models[NodeId(14)], mean([MODELS[A], MODELS[B]], below))
    assert A not in models


def test_split_parts_are_the_means_of_their_children() -> None:
    into = (NodeId(14), NodeId(15))
    models = inherited(Split(B, into, ((CLIENTS[2],), (CLIENTS[3], CLIENTS[4]))))
    torch.testing.assert_close(models[into[0]], MODELS[CLIENTS[2]])
    torch.testing.assert_close(models[into[1]], of_clients([3, 4]))
    assert B not in models


def test_split_of_the_root_keeps_the_root() -> None:
    into = (NodeId(14), NodeId(15))
    models = inherited(Split(ROOT, into, ((A, B), (C,))))
    assert torch.equal(models[ROOT], MODELS[ROOT])
    torch.testing.assert_close(models[into[1]], MODELS[C])


def test_prune_forgets_the_cluster_alone() -> None:
    models = inherited(Prune(C))
    assert set(MODELS) - set(models) == {C}


def test_edits_build_on_each_other() -> None:
    models = inherited(
        Graft(CLIENTS[5], A),
        Prune(C),
        Split(A, (NodeId(14), NodeId(15)), ((CLIENTS[0], CLIENTS[5]), (CLIENTS[1],))),
        Merge((NodeId(14), B), NodeId(16)),
        Prune(NodeId(15)),
    )
    sizes = [len(FED.owned[CLIENTS[i]]) for i in range(6)]
    part = mean([MODELS[CLIENTS[0]], MODELS[CLIENTS[5]]], [sizes[0], sizes[5]])
    expected = mean([part, MODELS[B]], [sizes[0] + sizes[5], sum(sizes[2:5])])
    torch.testing.assert_close(models[NodeId(16)], expected)


def test_mean_of_weighs_by_samples_below() -> None:
    sizes = [sum(len(FED.owned[c]) for c in TREE.clients_of(n)) for n in (A, B, C)]
    expected = mean([MODELS[n] for n in (A, B, C)], sizes)
    assert torch.equal(mean_of((A, B, C), TREE, MODELS, FED), expected)


def test_means_up_are_those_of_all_clients_below() -> None:
    clients = {client: MODELS[client] for client in CLIENTS}
    found = means_up(TREE, clients, FED)
    assert set(found) == set(TREE.parent)
    for cluster in TREE.clusters:
        below = TREE.clients_of(cluster)
        expected = mean([MODELS[c] for c in below], [len(FED.owned[c]) for c in below])
        torch.testing.assert_close(found[cluster], expected)
    assert all(found[client] is MODELS[client] for client in CLIENTS), "no copies"


def test_clusters_do_not_train_on_rows_that_no_client_has_any_more() -> None:
    """Data changed since the pool was gathered, or the client that shared them has left."""
    fed = federation(6, spy=True)
    spy = fed.engine
    assert isinstance(spy, Spy)
    own = fed.owned[CLIENTS[0]][:3]
    gone = np.array([row for row in range(500) if all(row not in r for r in fed.owned.values())])
    pools = {node: np.empty(0, dtype=np.int64) for node in TREE.clusters}
    pools |= {A: np.concatenate([own, gone[:5]]), B: gone[:4]}
    trained_on_pools(TREE, MODELS, pools, 0.5, fed)
    assert [(task.site, task.samples.tolist()) for task in spy.tasks] == [(A, own.tolist())]
