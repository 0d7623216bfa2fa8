"""Many models as the rows of a matrix, in a few operations however many there are.

A GPU takes longer to be told of an operation on one small model than to do it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sofa_fl.models.flat import Vector, check_size, on_device
from sofa_fl.models.mix import Mix, Model

BLOCK = 1 << 27  # numbers that are computed at a time
Terms = Sequence[tuple[Vector, float]]  # vectors, and what each is multiplied by


def rows_of(models: Sequence[Model], size: int) -> Tensor:
    """Every model, of `size` numbers, as a row; all mixes are computed together."""
    terms = [_terms(model) for model in models]
    for each in terms:
        for vector, _ in each:
            check_size(vector, size)
    if max(map(len, terms)) == 1:
        return torch.stack([vector for ((vector, _),) in terms])
    return sums_of(terms, size)


def sums_of(sums: Sequence[Terms], size: int) -> Tensor:
    """Row `i` is the weighted sum of the first `size` numbers of the vectors in `sums[i]`.

    A row without terms is zero; one row at least must have some.
    """
    like = next(vector for terms in sums for vector, _ in terms)
    out = like.new_empty(len(sums), size)
    step = max(1, BLOCK // size)
    for start in range(0, len(sums), step):
        _fill(out[start : start + step], sums[start : start + step])
    return out


def _fill(out: Tensor, sums: Sequence[Terms]) -> None:
    vectors: dict[int, Vector] = {}
    numbers: dict[int, int] = {}
    which = np.zeros((max(1, *map(len, sums)), len(sums)), dtype=np.int64)
    weights = np.zeros(which.shape, dtype=np.float32)
    for row, terms in enumerate(sums):
        for k, (vector, weight) in enumerate(terms):
            vectors[id(vector)] = vector
            which[k, row] = numbers.setdefault(id(vector), len(numbers))
            weights[k, row] = weight
        which[len(terms) :, row] = which[0, row]  # of weight 0; another may not be finite
    if not vectors:
        out.zero_()
        return
    bank = torch.stack([vector[: out.shape[1]] for vector in vectors.values()])
    places = on_device(which, out.device)
    factors = on_device(weights, out.device)[:, :, None]
    torch.mul(bank[places[0]], factors[0], out=out)
    for place, factor in zip(places[1:], factors[1:]):
        out.addcmul_(bank[place], factor)
    if empty := [row for row, terms in enumerate(sums) if not terms]:
        out[empty] = 0.0


def _terms(model: Model) -> Terms:
    if not isinstance(model, Mix):
        return [(model, 1.0)]
    total = float(sum(model.weights))
    return [(vector, weight / total) for vector, weight in zip(model.models, model.weights)]
