"""Fewer candidates for the rules, in the same trees and edits. Each method is one fast part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sofa_fl.topology.clustering.candidates import Candidates
from sofa_fl.topology.clustering.fast.mean_distances import (
    SURE,
    mean_distances,
    slack_of,
    sums_within,
)
from sofa_fl.topology.clustering.fast.nearest_neighbors import FastNeighbors
from sofa_fl.topology.clustering.fast.split_bounds import possible_numbers
from sofa_fl.topology.clustering.separation import CLEARLY, power_of
from sofa_fl.topology.geometry.space import NodePositions, Space
from sofa_fl.topology.tree.tree_arrays import Rows


def surely_apart(space: Space, nodes: NodePositions, a: Rows, b: Rows) -> NDArray[np.bool_]:
    """Which of these pairs of clusters are surely set apart (`PartSeparation.set_apart`).

    Not by manhattan: it knows no mean distances.
    """
    unweighted, parents = nodes.unweighted, nodes.arrays.parents[1:]
    num, positions, n = unweighted.weights, unweighted.positions, len(nodes.weights)
    sums, several = sums_within(space, unweighted), nodes.num_children > 1
    num_pairs = num**2 - np.bincount(parents, num[1:] ** 2, minlength=n)
    num_pairs = np.where(several, num_pairs, 1)
    inner = 2 * (sums - np.bincount(parents, sums[1:], minlength=n)) / num_pairs
    inner = np.where(several, inner, np.inf)
    if space.metric == "euclidean":
        apart = positions[a] - positions[b]
        outer = np.einsum("ij,ij->i", apart, apart)
        outer = outer + unweighted.variances[a] + unweighted.variances[b]
    else:
        outer = 1 - np.einsum("ij,ij->i", positions[a], positions[b])
    slack = slack_of(space, nodes) + 1e-10 * (sums / num_pairs)[np.stack([a, b])].max(axis=0)
    least = outer / CLEARLY ** power_of(space)
    return np.asarray(np.minimum(inner[a], inner[b]) < least * (1 - SURE) - slack)


class FastCandidates(Candidates):
    """Only what the default rules may accept, as far as bounds tell."""

    def neighbors(self, space: Space) -> FastNeighbors:
        return FastNeighbors(space)

    def merges(self, space: Space, nodes: NodePositions, a: Rows, b: Rows) -> tuple[Rows, Rows]:
        if space.metric == "manhattan" or not len(a):
            return a, b
        doubtful = ~surely_apart(space, nodes, a, b)
        return a[doubtful], b[doubtful]

    def splits(
        self, space: Space, nodes: NodePositions, numbers: Mapping[int, Sequence[int]]
    ) -> Mapping[int, Sequence[int]]:
        if space.metric == "manhattan":
            return numbers
        means = mean_distances(space, nodes, {row: nodes.arrays.children(row) for row in numbers})
        possible = {row: possible_numbers(means[row], numbers[row]) for row in numbers}
        return {row: some for row, some in possible.items() if some}
