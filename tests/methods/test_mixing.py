"""How much every node keeps of its own model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.methods.sofa.mixing import WEIGHTS, Mixing, effective_model, mixtures, weigh
from sofa_fl.models.flat import Mix, as_vector
from sofa_fl.topology.edits import Edit, Graft, Join, Leave, Merge, Prune, Split, apply_all
from sofa_fl.topology.space import Floats
from sofa_fl.topology.tree import NodeId, Tree
from tests.topology.strategies import examples, ids, node, tree_of

CLIENTS = ids(*range(9))
ROOT, A, B, C = ids(20, 21, 22, 23)
TREE = Tree(
    {ROOT: None, A: ROOT, B: ROOT, C: ROOT, **{c: (A, B, C)[c // 3] for c in CLIENTS}}, CLIENTS, 24
)
# 5 ── 6 ── 7 ── 0, 1
#   │     └─ 2
#   └─ 8 ── 3, 4
DEEP = tree_of([[[0, 1], 2], [3, 4]])
Table = Mapping[tuple[NodeId, NodeId], Floats]


def table_of(tree: Tree, seed: int = 0) -> dict[tuple[NodeId, NodeId], Floats]:
    rng = np.random.default_rng(seed)
    return {
        (client, n): rng.uniform(size=len(WEIGHTS))
        for client in tree.clients
        for n in tree.path(client)[1:]
    }


def by_hand(
    tree: Tree, table: Table, samples: Mapping[NodeId, int], more: float
) -> dict[NodeId, float]:
    """A node's mean loss over its clients' samples, shrunk to that over its siblings' as well.

    Siblings are clients with clients, and clusters with clusters.
    """
    found = {}
    for n in tree.parent:
        if n == tree.root:
            continue
        alike = [s for s in (n, *tree.siblings(n)) if (s in tree.members) == (n in tree.members)]
        rows = {
            s: [(samples[c], table[c, s]) for c in tree.clients_of(s) if (c, s) in table]
            for s in alike
        }
        every = [row for s in alike for row in rows[s]]
        if not rows[n]:
            continue
        mean = sum(k * losses for k, losses in every) / sum(k for k, _ in every)
        own, num = sum(k * losses for k, losses in rows[n]), sum(k for k, _ in rows[n])
        found[n] = WEIGHTS[int(np.argmin((own + more * mean) / (num + more)))]
    return found


@examples(60)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 5.0, 100.0]), st.sampled_from([TREE, DEEP]))
def test_weights_are_those_that_lose_least(seed: int, more: float, tree: Tree) -> None:
    rng = np.random.default_rng(seed)
    table = table_of(tree, seed)
    samples = {client: int(rng.integers(1, 40)) for client in tree.clients}
    absent = set(rng.choice(tree.clients, rng.integers(0, 3), replace=False))
    table = {(c, n): row for (c, n), row in table.items() if c not in absent}
    before = Mixing({n: 0.25 for n in tree.parent if n != tree.root}, {tree.clients[0]: 3})
    asked = [client for client in tree.clients if client not in absent]
    found = weigh(tree, before, table, samples, asked, more)
    assert found.weights == {**before.weights, **by_hand(tree, table, samples, more)}
    expected = {c: before.missed.get(c, 0) + 1 for c in tree.clients if c in absent}
    assert found.missed == expected


def test_who_was_never_asked_keeps_its_own_model() -> None:
    found = weigh(TREE, Mixing(), {}, {}, (), 0.0)
    assert set(found.weights.values()) == {1.0}
    assert set(found.weights) == set(TREE.parent) - {ROOT}
    assert found.missed == dict.fromkeys(CLIENTS, 1)
    assert not found.idle


def test_few_samples_follow_the_siblings() -> None:
    odd, usual = np.array([1.0, 1, 1, 1, 1, 0]), np.array([0.0, 1, 1, 1, 1, 1])
    table = {(c, n): odd if c == 0 else usual for c in CLIENTS for n in TREE.path(c)[1:]}
    samples = dict.fromkeys(CLIENTS, 10)
    alone = weigh(TREE, Mixing(), table, samples, CLIENTS, 0.0).weights
    steady = weigh(TREE, Mixing(), table, samples, CLIENTS, 1e9).weights
    assert [alone[c] for c in CLIENTS[:3]] == [1.0, 0.0, 0.0]
    assert [steady[c] for c in CLIENTS[:3]] == [0.0] * 3


def chosen(weights: Mapping[NodeId, float]) -> Table:
    """Losses by which every node gets the weight that is given for it, by default 0.5."""

    def row(n: NodeId) -> Floats:
        return np.array([float(a != weights.get(n, 0.5)) for a in WEIGHTS])

    return {(c, n): row(n) for c in CLIENTS for n in TREE.path(c)[1:]}


def test_clusters_that_nobody_gains_from_are_counted() -> None:
    """A stands for its parent; the clients of B take nothing from it, but may be alike."""
    weights = {A: 0.0, **dict.fromkeys(CLIENTS[3:], 1.0), CLIENTS[8]: 0.9}
    table, samples = chosen(weights), dict.fromkeys(CLIENTS, 10)
    mixing = Mixing()
    for rounds in (1, 2, 3):
        mixing = weigh(TREE, mixing, table, samples, CLIENTS, 0.0)
        assert mixing.idle == {A: rounds}
    mixing = weigh(TREE, mixing, chosen({**weights, A: 0.25}), samples, CLIENTS, 0.0)
    assert not mixing.idle, "A is of use again, so its count begins anew"


@pytest.mark.parametrize(("cost", "idle"), [(0.01, False), (0.03, True)])
def test_a_cluster_above_others_is_idle_if_all_of_them_would_lose(cost: float, idle: bool) -> None:
    tree = tree_of([[[0, 1], [2, 3]], 4])
    above, *below = (c for c in tree.clusters if c != tree.root)
    rows = {above: [1.0, 1, 0, 1, 1, 1], **{key: [1.0, 1, 1, cost, cost, 0] for key in below}}
    table = {
        (c, n): np.array(rows.get(n, [1.0, 1, 0, 1, 1, 1]))
        for c in tree.clients
        for n in tree.path(c)[1:]
    }
    samples = dict.fromkeys(tree.clients, 10)
    found = weigh(tree, Mixing(), table, samples, tree.clients, 0.0, least=0.02)
    assert (above in found.idle) == idle


def test_a_cluster_is_as_idle_as_before_while_none_of_its_clients_is_asked() -> None:
    mixing = Mixing(dict.fromkeys(TREE.parent, 0.0), idle={A: 2, B: 3})
    table = {key: row for key, row in chosen({A: 0.0, B: 0.0}).items() if key[0] in CLIENTS[:3]}
    found = weigh(TREE, mixing, table, dict.fromkeys(CLIENTS, 10), CLIENTS[:3], 0.0)
    assert found.idle == {A: 3, B: 3}


def test_in_every_round_a_client_keeps_the_same_part_of_what_sets_it_apart() -> None:
    """Whether it trains or not; who keeps everything, or nothing, goes on doing so."""
    mixing = Mixing({node(0): 0.5, node(1): 1.0, A: 0.25, B: 0.0}, {node(0): 2, node(1): 9})
    kept = [mixing.of(n) for n in (node(0), node(1), A, B, C)]
    assert kept == [0.125, 1.0, 0.25, 0.0, 1.0]


def test_a_client_that_moved_stands_for_its_new_parent() -> None:
    missed = {CLIENTS[0]: 1, CLIENTS[3]: 2, CLIENTS[6]: 3}
    before = Mixing(dict.fromkeys(TREE.parent, 0.5), missed, {A: 2, C: 1})
    kinds: list[list[Edit]] = [
        [Graft(CLIENTS[0], B), Leave(CLIENTS[6])],
        [Merge((A, B), node(24))],
        [Split(A, ids(24, 25), (CLIENTS[:2], CLIENTS[2:3]))],
        [Join(node(9), A)],
    ]
    for edits in kinds:
        after = apply_all(TREE, edits)
        found = before.after(TREE, after)
        moved = [c for c in after.clients if after.parent[c] != TREE.parent.get(c)]
        assert moved
        assert {found.of(c) for c in moved} == {0.0}
        assert {found.weights[c] for c in after.clients if c not in moved} == {0.5}
        assert set(found.weights) <= set(after.parent)
        assert set(found.missed) == set(missed) & after.members
        assert found.idle == {k: v for k, v in before.idle.items() if k in after.parent}


@examples(40)
@given(st.integers(0, 10_000))
def test_pruning_an_idle_cluster_changes_nobodys_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    models = {n: torch.from_numpy(rng.normal(size=3)) for n in DEEP.parent}
    weights = {n: WEIGHTS[rng.integers(len(WEIGHTS))] for n in DEEP.parent if n != DEEP.root}
    low = DEEP.parent[node(0)]
    (high,) = {DEEP.parent[n] for n in (low, node(2)) if n is not None}
    assert low is not None
    assert high is not None
    cluster = (low, high)[seed % 2]
    weights |= {cluster: 0.0} if seed % 3 else dict.fromkeys(DEEP.children[cluster], 1.0)
    before = Mixing(weights, {c: int(rng.integers(3)) for c in DEEP.clients})
    pruned = apply_all(DEEP, [Prune(cluster)])
    after = before.after(DEEP, pruned)
    for client in DEEP.clients:
        was = effective_model(DEEP.path(client), models, before)
        now = effective_model(pruned.path(client), models, after)
        torch.testing.assert_close(as_vector(now), as_vector(was))


@examples(30)
@given(st.integers(0, 10_000))
def test_what_a_node_stands_for_is_mixed_with_what_its_parent_stands_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    models = {n: torch.from_numpy(rng.normal(size=3)) for n in DEEP.parent}
    mixing = Mixing(
        {n: float(rng.choice(WEIGHTS)) for n in DEEP.parent if n != DEEP.root},
        {c: int(rng.integers(3)) for c in DEEP.clients},
    )
    table = mixtures(DEEP, models, mixing, DEEP.clients)
    for client in DEEP.clients:
        above = models[DEEP.root]
        for n in DEEP.path(client)[1:]:
            for a, choice in zip(WEIGHTS, table[client, n]):
                expected = (1 - a) * above + a * models[n]
                torch.testing.assert_close(as_vector(choice), expected)
            above = (1 - mixing.of(n)) * above + mixing.of(n) * models[n]
        torch.testing.assert_close(
            as_vector(effective_model(DEEP.path(client), models, mixing)), above
        )


def test_a_mixture_of_one_is_that_one() -> None:
    models = {n: torch.full((2,), float(n)) for n in TREE.parent}
    choices = mixtures(TREE, models, Mixing(), CLIENTS[:1])
    assert set(choices) == {(CLIENTS[0], A), (CLIENTS[0], CLIENTS[0])}
    first, *between, last = choices[CLIENTS[0], A]
    assert first is models[ROOT]
    assert last is models[A]
    assert all(isinstance(choice, Mix) for choice in between)


@pytest.mark.parametrize(("sizes", "weight"), [((1, 99), 1.0), ((99, 1), 0.0)])
def test_a_cluster_goes_by_samples(sizes: tuple[int, int], weight: float) -> None:
    tree = tree_of([[0, 1], 2])
    (cluster,) = (c for c in tree.clusters if c != tree.root)
    rows = np.array([0.0, 1, 1, 1, 1, 1]), np.array([1.0, 1, 1, 1, 1, 0])
    table = {(node(i), cluster): row for i, row in enumerate(rows)}
    found = weigh(tree, Mixing(), table, dict(zip(ids(0, 1), sizes)), ids(0, 1), 0.0)
    assert found.weights[cluster] == weight
    assert replace(found, idle={}).weights[node(2)] == 1.0, "was never asked"
