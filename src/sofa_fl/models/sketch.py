"""A model in few numbers that keep distances, so that many models can be told apart cheaply.

A count sketch without scattered memory: the entries, with random signs, lie in rows of `size`
boxes; the lower half of the rows, turned by a random number of boxes, is added to the upper, and so
on until one row is left. It is the same to the bit however many models are sketched, with however
many threads, and as often as one likes on a GPU: every addition has its place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sofa_fl.errors import ModelError
from sofa_fl.models.flat import Vector, check_size
from sofa_fl.seeding import rng_for


class Sketch:
    """A random linear map of `num_entries` numbers to `size`; fewer are left as they are.

    Whatever the vector x, over the draws of the seed, |sketch(x)|² has mean |x|² and a variance of
    at most 2 · |x|⁴ / size: two entries share a box with a chance of at most 1 / size, since just
    one of them is turned as their rows meet, and then their product counts with a random sign. The
    map is linear, so this holds of every difference of two models. By Chebyshev a squared distance
    is off by more than a share e of itself with a chance of at most 2 / (size · e²). Where many
    entries count alike the error is near to normal, with a deviation of √(2 / size): 2.2 % of a
    squared distance at 4096.
    """

    def __init__(self, size: int, num_entries: int, seed: int) -> None:
        if size < 1:
            raise ModelError(f"a sketch needs a size of at least 1, got {size}")
        self.size = min(size, num_entries)
        self.num_entries = num_entries
        rng = rng_for(seed, "sketch")
        signs = 2 * rng.integers(0, 2, num_entries, dtype=np.int8) - 1
        self._signs = torch.from_numpy(signs.astype(np.float32))
        num_rows = -(-num_entries // self.size)
        self._turns: list[int] = rng.integers(0, self.size, num_rows.bit_length()).tolist()

    def __call__(self, vector: Vector) -> Tensor:
        """The sketch of a flat model, in double precision, on the device of the model."""
        check_size(vector, self.num_entries)
        if self.size == self.num_entries:
            return vector.double()
        if self._signs.device != vector.device:
            self._signs = self._signs.to(vector.device)
        num_rows = -(-self.num_entries // self.size)
        numbers = vector.new_zeros(num_rows * self.size, dtype=torch.float64)
        torch.mul(vector, self._signs, out=numbers[: self.num_entries])
        rows = numbers.view(num_rows, self.size)
        for turn in self._turns:
            half = (len(rows) + 1) // 2
            upper, lower = rows[: len(rows) - half], rows[half:]
            upper[:, turn:] += lower[:, : self.size - turn]
            upper[:, :turn] += lower[:, self.size - turn :]
            rows = rows[:half]
        return rows[0].clone()
