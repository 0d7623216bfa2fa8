"""Nearest others, kept up to date over joins, against measuring everything anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sofa_fl.topology.clustering.fast import nearest_neighbors as nearest
from sofa_fl.topology.clustering.fast.nearest_neighbors import Nearest
from sofa_fl.topology.geometry.node_positions import Body, join
from sofa_fl.topology.geometry.space import Linkage, Metric, Space
from sofa_fl.topology.tree import NodeId

KINDS: list[tuple[Metric, Linkage]] = [
    ("euclidean", "centroid"),
    ("euclidean", "average"),
    ("manhattan", "centroid"),
    ("cosine", "centroid"),
    ("cosine", "average"),
]


@pytest.mark.parametrize(("metric", "linkage"), KINDS)
@given(seed=st.integers(0, 2**32), n=st.integers(3, 14), block=st.sampled_from([1, 7, 1 << 24]))
def test_what_is_kept_is_what_would_be_measured(
    metric: Metric, linkage: Linkage, seed: int, n: int, block: int
) -> None:
    rng = np.random.default_rng(seed)
    clients = tuple(NodeId(i) for i in range(n))
    weights = rng.uniform(0.5, 2, n)
    space = Space(clients, rng.normal(size=(n, 3)), weights, metric, linkage)
    bodies: list[Body] = list(space.bodies.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK", block)  # many blocks must give what one gives
        nodes = Nearest(space)
        while (alive := np.flatnonzero(nodes.alive)).size > 1:
            apart = space.between([bodies[i] for i in alive], [bodies[i] for i in alive])
            np.fill_diagonal(apart, np.inf)
            assert nodes.smallest == pytest.approx(apart.min(), abs=1e-12)
            reach = float(np.median(apart.min(axis=1)))
            near = alive[apart.min(axis=1) <= reach * (1 - 1e-9)]
            assert set(near) <= set(nodes.within(reach))
            shuffled = rng.permutation(alive)
            groups = [shuffled[:2]] if len(alive) < 5 else [shuffled[:2], shuffled[2:5]]
            rows = nodes.join(groups)
            assert rows.tolist() == list(range(len(bodies), len(bodies) + len(groups)))
            bodies += [join([bodies[i] for i in group]) for group in groups]


def test_one_client_has_no_other() -> None:
    nodes = Nearest(Space((NodeId(4),), np.zeros((1, 2)), np.ones(1)))
    assert nodes.smallest == np.inf
    assert nodes.alive.tolist() == [True]
