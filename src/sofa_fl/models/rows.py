"""Many models as the rows of a matrix, in a few operations however many there are.

A GPU takes longer to be told of an operation on one small model than to do it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from sofa_fl.models.flat import Mix, Model, Vector, check_size, on_device
from sofa_fl.models.gpu_sums import Terms, add_up

BLOCK = 1 << 27  # numbers that are computed at a time


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
    if add_up(sums, out):
        return out
    step = max(1, BLOCK // size)
    for start in range(0, len(sums), step):
        _fill(out[start : start + step], sums[start : start + step])
    return out


def _fill(out: Tensor, sums: Sequence[Terms]) -> None:
    bank: list[Vector] = []
    numbers: dict[int, int] = {}
    which, weights = list[list[int]](), list[list[float]]()
    most = max(1, *map(len, sums))
    for terms in sums:
        places = []
        for vector, _ in terms:
            number = numbers.setdefault(id(vector), len(bank))
            if number == len(bank):
                bank.append(vector)
            places.append(number)
        filling = most - len(terms)  # of weight 0; another vector may not be finite
        which.append(places + (places[:1] or [0]) * filling)
        weights.append([*(weight for _, weight in terms), *[0.0] * filling])
    if not bank:
        out.zero_()
        return
    size = out.shape[1]
    together = torch.stack([v if len(v) == size else v[:size] for v in bank])
    factors = on_device(np.array(weights, dtype=np.float32), out.device)
    for k, place in enumerate(zip(*which)):
        times = _times_in_a_row(place)
        rows = together[on_device(np.array(place[::times]), out.device)][:, None]
        factor, all_times = factors[:, k].view(-1, times, 1), out.view(len(rows), times, -1)
        if k:
            all_times.addcmul_(rows, factor)
        else:
            torch.mul(rows, factor, out=all_times)
    if empty := [row for row, terms in enumerate(sums) if not terms]:
        out[empty] = 0.0


def _times_in_a_row(values: Sequence[int]) -> int:
    """A number such that, cut into parts of that length, all values of a part are the same."""
    return math.gcd(*(len(list(run)) for _, run in groupby(values)))


def _terms(model: Model) -> Terms:
    if not isinstance(model, Mix):
        return [(model, 1.0)]
    total = float(sum(model.weights))
    return [(vector, weight / total) for vector, weight in zip(model.models, model.weights)]
