"""A federation of real machines: what the server asks, what a node answers, and Flower between.

Only `flower.py`, `grid.py` and `node.py` know of Flower; the rest runs without it.
"""
