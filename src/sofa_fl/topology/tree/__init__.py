"""The tree of clients, and the edits that change it."""

from sofa_fl.topology.tree.tree import NodeId, Rows, Tree, flat_tree, value_at_level

__all__ = ["NodeId", "Rows", "Tree", "flat_tree", "value_at_level"]
