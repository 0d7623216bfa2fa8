"""The tree of clients, how it is built (DMAC) and how it is reshaped (SHAPE).

Uses NumPy, SciPy, scikit-learn and threadpoolctl only: trees can be built, replayed and drawn
without torch.
"""
