"""The partitions of a cluster's children that k-means proposes for a split."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from sofa_fl.topology.geometry.node_positions import NodePositions
from sofa_fl.topology.tree.tree_arrays import Rows


def partitions(
    nodes: NodePositions, children: Rows, numbers: Iterable[int]
) -> Iterator[tuple[Rows, ...]]:
    """Partition `children` into each of `numbers` parts, in ascending order.

    It stops at a number above that of different positions: k-means cannot tell equal ones apart.
    """
    positions = nodes.positions[children]
    positions = positions - positions.mean(axis=0)
    # To nine digits, and in an order that depends on the positions alone: neither the last bit of
    # a mean nor a client's number must steer k-means.
    positions = (positions / (np.abs(positions).max() or 1.0)).round(9)
    order = np.lexsort(positions.T[::-1])
    positions, children = positions[order], children[order]
    num_different = 1 + int((np.diff(positions, axis=0) != 0).any(axis=1).sum())
    for k in numbers:
        if k > num_different:
            return
        with warnings.catch_warnings():  # of positions so near that they are one to k-means
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = (
                KMeans(k, n_init=4, random_state=0)
                .fit(positions, sample_weight=nodes.weights[children])
                .labels_
            )
        if len(set(labels)) < k:
            return
        yield tuple(children[labels == label] for label in dict.fromkeys(labels))
