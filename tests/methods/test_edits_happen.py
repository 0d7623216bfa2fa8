"""Each SHAPE operation happens for its reason, with real models on real data.

Clients of MNIST in three known groups train from a tree that was made wrong on purpose, through
the same `round` as any run, and the tree comes right.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.federation import Federation
from sofa_fl.methods.sofa.averages import mean_of
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.methods.sofa.method import Sofa
from sofa_fl.methods.sofa.mixing import Mixing
from sofa_fl.methods.sofa.state import SofaState
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory
from sofa_fl.sharing import Shared, SharingConfig
from sofa_fl.topology.config import ShapeConfig
from sofa_fl.topology.edits import Edit, Graft, Merge, Prune, Split
from sofa_fl.topology.tree import NodeId, Tree

LOCAL = LocalConfig(batches=20, batch_size=50, learning_rate=2e-3)
METHOD = Sofa(
    SofaConfig(
        position="directions",
        metric="euclidean",
        linkage="average",
        eta=1.0,
        shape=ShapeConfig(every=1),
    ),
    SharingConfig(ratio=0),
)
seeds = pytest.mark.parametrize("seed", [0, 1])


@cache
def federation(seed: int, clients_per_group: int) -> Federation:
    """Three groups, whose images are turned by thirds of a turn."""
    num_clients = 3 * clients_per_group
    config = DataConfig(
        partition="groups",
        num_rotations=3,
        num_swaps=1,
        num_clients=num_clients,
        num_train=400 * num_clients,
        num_test=10 * num_clients,
    )
    data = federate(config, seed)
    network = network_factory(ModelConfig(name="mlp", hidden=64), data.train.x.shape[1:], 10)
    engine = SequentialEngine(network, data, LOCAL)
    return Federation(data, engine, LOCAL, seed=seed, warmup=LOCAL.batches)


@cache
def warm_state(seed: int, clients_per_group: int) -> SofaState:
    state, _ = METHOD.init(federation(seed, clients_per_group).at(0))
    return state


def tree_of(nested: list[object], num_clients: int) -> Tree:
    """Lists are clusters, numbers clients: `[[0, 1], [2, 3]]`, the root outermost."""
    parent: dict[NodeId, NodeId | None] = {}

    def hang(part: object, up: NodeId | None) -> None:
        if isinstance(part, int):
            parent[NodeId(part)] = up
            return
        assert isinstance(part, list)
        here = NodeId(num_clients + sum(node >= num_clients for node in parent))
        parent[here] = up
        for child in part:
            hang(child, here)

    hang(nested, None)
    return Tree(parent, tuple(map(NodeId, range(num_clients))), 1 + max(parent))


def one_round(
    seed: int, nested: list[object], clients_per_group: int = 3, more: int = 0
) -> tuple[Tree, Tree, tuple[Edit, ...]]:
    """A real round from warmed-up clients under a given tree: the tree before, after, the edits.

    And, if asked, some `more`; one more round must leave the new clusters alone. Without levels
    above clusters, of which DMAC may become certain in any round.
    """
    fed = federation(seed, clients_per_group)
    tree = tree_of(nested, 3 * clients_per_group)
    warm = warm_state(seed, clients_per_group)
    params = {client: warm.models[client] for client in fed.clients}
    for cluster in reversed(tree.clusters):
        params[cluster] = mean_of(tree.children[cluster], tree, params, fed)
    pools = dict.fromkeys(tree.clusters, np.empty(0, dtype=np.int64))
    state = SofaState(tree, params, {}, Mixing(), Shared(pools)).measured({}, fed.blind_loss)
    after, notes = METHOD.round(state, fed.at(1))
    assert set(after.models) == set(after.tree.parent)
    edits = [*notes.edits]
    for round in range(2, 2 + more):
        after, notes = METHOD.round(after, fed.at(round))
        edits += notes.edits
    _, later = METHOD.round(after, fed.at(2 + more))
    assert not without_levels(later.edits, fed)
    return tree, after.tree, without_levels(edits, fed)


def without_levels(edits: Sequence[Edit], fed: Federation) -> tuple[Edit, ...]:
    """The edits but for those that put a level above clusters."""

    def is_level(edit: Edit) -> bool:
        if not isinstance(edit, Split):
            return False
        return all(node not in fed.clients for group in edit.groups for node in group)

    return tuple(edit for edit in edits if not is_level(edit))


def clusters_of(tree: Tree) -> set[frozenset[int]]:
    """The clients of every parent of clients; levels above them do not count."""
    parents = {parent for c in tree.clients if (parent := tree.parent[c]) is not None}
    return {frozenset(map(int, tree.clients_of(parent))) for parent in parents}


TRUE_GROUPS = {frozenset({0, 1, 2}), frozenset({3, 4, 5}), frozenset({6, 7, 8})}


@seeds
def test_the_right_tree_is_left_alone(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    assert edits == ()
    assert after == before


@seeds
def test_graft_brings_a_client_home(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 1, 2, 3], [4, 5], [6, 7, 8]])
    home = before.parent[NodeId(4)]
    assert home is not None
    assert edits == (Graft(NodeId(3), home),)
    assert clusters_of(after) == TRUE_GROUPS


@seeds
def test_grafts_exchange_two_clients(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 1, 3], [2, 4, 5], [6, 7, 8]])
    first, second = before.parent[NodeId(0)], before.parent[NodeId(4)]
    assert first is not None
    assert second is not None
    assert set(edits) == {Graft(NodeId(3), second), Graft(NodeId(2), first)}
    assert clusters_of(after) == TRUE_GROUPS


@seeds
def test_merge_joins_a_group_cut_in_two(seed: int) -> None:
    nested: list[object] = [[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    before, after, edits = one_round(seed, nested, 4, more=3)
    (merge,) = (edit for edit in edits if isinstance(edit, Merge))
    assert set(merge.nodes) == {before.parent[NodeId(0)], before.parent[NodeId(2)]}
    assert clusters_of(after) == {frozenset(range(k, k + 4)) for k in (0, 4, 8)}


@seeds
def test_split_parts_two_groups_in_one_cluster(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 1, 2, 3, 4, 5], [6, 7, 8]])
    (split,) = edits
    assert isinstance(split, Split)
    assert split.node == before.parent[NodeId(0)]
    assert {frozenset(map(int, group)) for group in split.groups} == {
        frozenset({0, 1, 2}),
        frozenset({3, 4, 5}),
    }
    assert clusters_of(after) == TRUE_GROUPS
    assert after.depth == 2


@seeds
def test_prune_removes_a_cluster_with_one_child(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 1, 2], [[3, 4, 5]], [6, 7, 8]])
    inner = before.parent[NodeId(3)]
    assert inner is not None
    outer = before.parent[inner]
    assert outer is not None
    assert edits == (Prune(outer),)
    assert after.parent[inner] == after.root
    assert clusters_of(after) == TRUE_GROUPS


@seeds
def test_prune_removes_a_cluster_that_all_have_left(seed: int) -> None:
    before, after, edits = one_round(seed, [[0, 3], [1, 2], [4, 5], [6, 7, 8]])
    left, first, second = (before.parent[NodeId(c)] for c in (0, 1, 4))
    assert left is not None
    assert first is not None
    assert second is not None
    assert edits == (Graft(NodeId(0), first), Graft(NodeId(3), second), Prune(left))
    assert clusters_of(after) == TRUE_GROUPS
