"""Places and trees from noised models: found where there are groups, and only there."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from sofa_fl.engine.base import Outcome
from sofa_fl.methods.sofa.averages import Update
from sofa_fl.methods.sofa.by_models import (
    SofaByModels,
    agree_more,
    denoised,
    find_all_splits,
    splits_by_models,
)
from sofa_fl.methods.sofa.config import SofaConfig
from sofa_fl.models.flat import Vector
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.config import DmacConfig
from sofa_fl.topology.edits import Split, apply_all
from sofa_fl.topology.tree import NodeId, Tree, flat_tree

SIZE = 4000  # numbers of a model


@dataclass
class Fed:
    """As much of a federation as is asked for."""

    round: int = 0
    first_id: int = 20
    engine: Any = field(default_factory=lambda: SimpleNamespace(num_trainable=SIZE))

    def size(self, client: NodeId) -> int:
        return 100


def learned(groups: list[int], noise: float, seed: int = 0) -> dict[NodeId, Vector]:
    """A direction of length 1 per group, and noise of this length beside it."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(max(groups) + 1, SIZE)) / SIZE**0.5
    extra = noise * rng.normal(size=(len(groups), SIZE)) / SIZE**0.5
    return {
        NodeId(i): torch.from_numpy(means[g] + e).float()
        for i, (g, e) in enumerate(zip(groups, extra))
    }


def grown(groups: list[int], noise: float, seed: int = 0, round: int = 0) -> Tree:
    fed: Any = Fed(round)
    tree = flat_tree([NodeId(i) for i in range(len(groups))], len(groups))
    return divided(tree, learned(groups, noise, seed), fed)


def divided(tree: Tree, learned: dict[NodeId, Vector], fed: Any) -> Tree:
    return apply_all(tree, find_all_splits(tree, learned, DmacConfig(), fed))


def clusters(tree: Tree) -> set[tuple[int, ...]]:
    return {tuple(sorted(tree.clients_of(c))) for c in tree.clusters if c != tree.root}


FOUR = [i % 4 for i in range(20)]
EXACTLY = {tuple(range(g, 20, 4)) for g in range(4)}


@pytest.mark.parametrize("noise", [0.5, 2.0, 3.5])
def test_groups_are_found_in_noise_that_is_longer_than_what_was_learned(noise: float) -> None:
    assert sum(clusters(grown(FOUR, noise, seed)) == EXACTLY for seed in range(5)) >= 4


def test_in_too_much_noise_nobody_is_put_where_it_does_not_belong() -> None:
    for seed in range(10):
        for cluster in clusters(grown(FOUR, 6.0, seed)):
            rest = len(cluster) > 5
            assert rest or len({FOUR[client] for client in cluster}) == 1


@pytest.mark.parametrize("num", [5, 6, 20])
def test_noise_alone_has_no_groups(num: int) -> None:
    seen = sum(bool(clusters(grown([0] * num, 5.0, seed))) for seed in range(40))
    assert seen <= 2


def test_all_rounds_count() -> None:
    """What is too noisy in one round is clear after ten, since learning adds up faster."""
    found: dict[NodeId, Vector] = {}
    method, fed = SofaByModels(SofaConfig(), SharingConfig()), cast(Any, Fed())
    for round in range(10):
        for client, vector in learned(FOUR, 8.0, round).items():
            steady = learned(FOUR, 0.0)[client]
            noise = vector - learned(FOUR, 0.0, round)[client]
            update = Update(torch.zeros(SIZE), Outcome(steady + noise, np.zeros(1, np.float32)))
            found = method.learned(found, {client: update}, fed)
        if round == 0:
            first = dict(found)
    tree = flat_tree([NodeId(i) for i in range(20)], 20)
    assert clusters(divided(tree, first, fed)) != EXACTLY
    assert clusters(divided(tree, found, fed)) == EXACTLY


def test_a_part_of_the_groups_leaves_the_rest_together() -> None:
    groups = [0] * 6 + [1] * 6 + list(range(2, 8))
    tree = grown(groups, 1.0)
    assert {tuple(range(6)), tuple(range(6, 12)), tuple(range(12, 18))} == clusters(tree)


def test_clusters_are_looked_at_when_evidence_has_doubled() -> None:
    looked = [r for r in range(20) if clusters(grown(FOUR, 1.0, round=r))]
    assert looked == [0, 1, 2, 4, 8, 16]


def test_nested_groups_are_divided_further() -> None:
    """Four clusters of one federation at once, and each gets ids of its own."""
    halves = [i % 2 for i in range(12)]
    fed: Any = Fed()
    parent: dict[NodeId, NodeId | None] = {NodeId(30): None, NodeId(31): NodeId(30)}
    parent |= {NodeId(32): NodeId(30)} | {NodeId(i): NodeId(31 + i // 6) for i in range(12)}
    tree = Tree(parent, tuple(NodeId(i) for i in range(12)), 33)
    edits = splits_by_models(tree, learned(halves, 1.0), DmacConfig(), fed)
    assert [edit.node for edit in edits if isinstance(edit, Split)] == [31, 32]
    assert {p for e in edits if isinstance(e, Split) for p in e.into} == {33, 34, 35, 36}


def test_agreement_is_weighed_against_the_ways_to_pick() -> None:
    some = learned([0, 0, 0, 1, 1, 1], 0.5)
    clients = tuple(some)
    assert agree_more(some, clients, [clients[:3], clients[3:]])
    assert not agree_more(some, clients, [(clients[0], clients[3]), (clients[1], clients[4])])
    noise = learned([0] * 6, 5.0)
    assert not agree_more(noise, clients, [clients[:3], clients[3:]])
    assert not agree_more(some, clients[:2], [clients[:2]])


def test_a_diagonal_of_noise_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    products = rng.normal(size=(6, 6))
    products = products + products.T
    more = products + np.diag(rng.uniform(100, 200, 6))
    np.testing.assert_allclose(denoised(products), denoised(more))
    np.testing.assert_allclose(denoised(more).sum(axis=0), 0, atol=1e-9)
    assert denoised(np.ones((1, 1))) == 0
