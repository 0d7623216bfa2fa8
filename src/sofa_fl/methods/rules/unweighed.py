"""Mixing weights without held-out losses."""

from __future__ import annotations

from sofa_fl.methods.rules.mixing import Mixing
from sofa_fl.topology.tree import Tree


def parent_models(tree: Tree, *_: object) -> Mixing:
    """Clusters stand for their own models, and clients for those of their parents.

    For models with noise: a cluster's has less of it than any of its clients'.
    """
    weights = {node: 0.0 if node in tree.members else 1.0 for node in tree.parent}
    return Mixing(weights, dict.fromkeys(tree.clients, 0.0))
