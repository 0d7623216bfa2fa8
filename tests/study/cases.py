"""Rows without runs."""

from __future__ import annotations

from study.rows.row_files import Row


def row(method: str, seed: int = 0, mean: float = 0.9, **more: object) -> Row:
    """A row of the benchmark."""
    made: Row = {"setting": "S1", "method": method, "sharing": 0.1, "seed": seed, "mean": mean}
    made |= {"std": 0.01, "min": mean - 0.1, "gap": 0.1, "jain": 0.999, "bottom10": mean - 0.1}
    made |= {"full": mean, "root": mean, "samples_trained": 100, "seconds": 1.0}
    return {**made, "engine": "sequential", "overrides": {}, **more}


def rows(method: str, means: list[float], **more: object) -> list[Row]:
    """A row per seed."""
    return [row(method, seed, mean, **more) for seed, mean in enumerate(means)]
