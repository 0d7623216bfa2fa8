"""DMAC builds the tree, SHAPE reshapes it."""
