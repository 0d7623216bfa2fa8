"""The tree of clients: what it is, how it is built (DMAC), how it is reshaped (SHAPE).

NumPy, SciPy, scikit-learn and its threadpoolctl only, so that trees are built, replayed and drawn
without torch.
"""
