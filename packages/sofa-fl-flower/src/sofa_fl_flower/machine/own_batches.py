"""Batches that the site draws itself, so that nobody else knows which samples are in one.

A server that knew could treat every loss and every model as an equation, and solve for single
samples. For the same reason no pass covers all samples: the difference between a full pass and one
that leaves out a sample would reveal that sample.
"""

from __future__ import annotations

import secrets

import numpy as np

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import batch_order

TRIES = 100  # to draw a batch with enough samples of the site


def draw_batches(num: int, num_own: int, batches: int, size: int, fewest: int) -> Samples:
    """Positions below `num`, `(batches, size)`; each batch is drawn from all samples.

    Those below `num_own` are the site's. A batch with fewer than `fewest` of them is drawn again;
    if that does not help, it is the last one, since the training will be refused.
    """
    rng = np.random.default_rng(secrets.randbits(128))
    order: list[Samples] = []
    tries = TRIES if min(size, num_own) >= fewest else 1
    while len(order) < batches:
        for _ in range(tries):
            # All but a few samples would tell of these few, so a large batch repeats some.
            batch = rng.choice(num, size, replace=2 * size > num)
            if is_enough := num_distinct(batch[None], num_own) >= fewest:
                break
        order.append(batch)
        if not is_enough:
            break
    return np.stack(order)


def num_distinct(order: Samples, num_own: int) -> int:
    """The smallest number of different samples of the site in any batch."""
    order = np.sort(order, axis=1)
    is_new = np.diff(order, axis=1, prepend=-1) > 0
    return int((is_new & (order < num_own)).sum(axis=1).min())


def arranged(order: Samples, seed: int) -> Samples:
    """The positions in an order of which an engine that shuffles by `seed` makes these batches."""
    positions = np.empty(order.size, dtype=np.int64)
    batches, size = order.shape
    positions[batch_order(order.size, batches, size, seed)] = order
    return positions
