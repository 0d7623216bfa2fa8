"""DMAC, dynamic multi-branch agglomerative clustering: the first tree (the paper's Algorithm 1)."""

from __future__ import annotations

from sofa_fl.errors import TopologyError
from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.config import DmacConfig as DmacConfig
from sofa_fl.topology.clustering.dmac_gaps import build_by_gaps
from sofa_fl.topology.clustering.fast.candidates import FastCandidates
from sofa_fl.topology.clustering.neighbors import TIE, linked
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.geometry.threads import one_thread
from sofa_fl.topology.tree import NodeId, Tree


@one_thread()
def dmac(
    space: Space, config: DmacConfig, first: int = 0, candidates: Candidates | None = None
) -> Tree:
    """Build a compact tree over the clients of `space`, from the nearest pairs upward.

    Clusters get ids from `first` on, and above all clients': smaller ones are left for clients
    that may join. Candidates: `FastCandidates`, unless given.
    """
    candidates = candidates or FastCandidates()
    first = max(first, 1 + max(space.clients))
    if config.increase is None:
        return build_by_gaps(space, first, candidates)
    return build_by_threshold(space, config.increase, first, candidates)


@one_thread()
def paper_dmac(
    space: Space, config: DmacConfig, first: int = 0, candidates: Candidates | None = None
) -> Tree:
    """Algorithm 1 as the paper writes it, with γ = `config.increase`."""
    if config.increase is None:
        raise TopologyError(
            "the paper's DMAC needs the increasing factor gamma, got none: set dmac.increase"
        )
    first = max(first, 1 + max(space.clients))
    return build_by_threshold(space, config.increase, first, candidates or FastCandidates())


def build_by_threshold(space: Space, gamma: float, first: int, candidates: Candidates) -> Tree:
    """Join all pairs (n_u, n_v) with D(n_u, n_v) ≤ τ · γ, where τ = min D, until one node is left.

    Pairs that share a node are joined to one cluster, which stands at the weighted mean of its
    clients. Chosen: distances that only rounding tells apart are equal.
    """
    nodes, num = candidates.neighbors(space), len(space.clients)
    ids = [*space.clients, *(NodeId(first + k) for k in range(num - 1))]  # by row of `nodes`
    parent: dict[NodeId, NodeId | None] = {}
    while len(nodes.alive) > 1:
        rows = nodes.within(gamma)
        distances = nodes.distances(rows, rows)
        tau = distances.min()
        u, v = (distances <= tau * gamma * (1 + TIE)).nonzero()
        groups = linked(rows[u], rows[v])
        for cluster, group in zip(nodes.join(groups), groups):
            parent |= {ids[member]: ids[cluster] for member in group}
    return Tree({ids[nodes.size - 1]: None, **parent}, space.clients, first + nodes.size - num)
