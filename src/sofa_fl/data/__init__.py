"""Datasets, and how they are dealt out to clients; NumPy and SciPy only, no layer above."""
