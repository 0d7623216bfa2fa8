"""What the rules look at: by default everything.

`fast.FastCandidates` looks at less. It may drop a candidate only if the rule would reject it, so
that the edits are the same with and without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sofa_fl.topology.clustering.neighbors import Neighbors
from sofa_fl.topology.geometry.node_positions import NodePositions
from sofa_fl.topology.geometry.space import Space
from sofa_fl.topology.tree.tree_arrays import Rows


class Candidates:
    """Every node may be joined, merged or split."""

    def neighbors(self, space: Space) -> Neighbors:
        """Who is near to whom while DMAC joins nodes."""
        return Neighbors(space)

    def merges(self, space: Space, nodes: NodePositions, a: Rows, b: Rows) -> tuple[Rows, Rows]:
        """Those pairs of sibling clusters that may be merged, in the same order."""
        return a, b

    def splits(
        self, space: Space, nodes: NodePositions, numbers: Mapping[int, Sequence[int]]
    ) -> Mapping[int, Sequence[int]]:
        """For each of these clusters, the numbers of parts into which it may be split."""
        return numbers
