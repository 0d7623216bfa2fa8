"""Split exams into sittings of even size, one model each, and join the sums of their batches.

Sittings end where batches end, and answers are one sum per batch, so the score of an exam is the
same to the bit however it was split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Samples, SplitName
from sofa_fl.engine.base import Exam, Prior
from sofa_fl.models.flat import Model, identity

Sums = NDArray[np.float64]  # loss and hits, summed over the samples of every batch
_NONE: Sums = np.empty((0, 2))


@dataclass(frozen=True, slots=True)
class Sitting:
    """One model on several sets of samples, each a part of an exam.

    Attributes:
        exams: The number of the exam that each set is a part of.
        priors: Added to the outputs, one for each set.
        max_loss: Value up to which the loss of a sample counts, if any.
    """

    model: Model
    split: SplitName
    sets: tuple[Samples, ...]
    exams: tuple[int, ...]
    priors: tuple[Prior | None, ...]
    max_loss: float | None = None

    @property
    def num_samples(self) -> int:
        return sum(map(len, self.sets))


def sittings(exams: Sequence[Exam], limit: int) -> list[Sitting]:
    """Split exams into sittings of at most `limit` samples, the longest first.

    Exams of one model share sittings, so that it is sent once. Parts of an exam keep their order;
    all but the last fill a sitting.
    """
    groups: dict[object, list[tuple[int, Samples]]] = {}
    for index, exam in enumerate(exams):
        parts = groups.setdefault((identity(exam.params), exam.split, exam.max_loss), [])
        samples = exam.samples
        if len(samples) <= limit:
            parts += [(index, samples)] if len(samples) else []
        else:
            parts += [(index, samples[i : i + limit]) for i in range(0, len(samples), limit)]
    found: list[tuple[int, Sitting]] = []
    for parts in groups.values():
        first = exams[parts[0][0]] if parts else None
        for portion in _portions(parts, limit):
            assert first is not None
            indices, sets = zip(*portion)
            priors = tuple([exams[index].prior for index in indices])
            sitting = Sitting(first.params, first.split, sets, indices, priors, first.max_loss)
            found.append((-sum(map(len, sets)), sitting))
    found.sort(key=itemgetter(0))
    return [sitting for _, sitting in found]


def alike(lengths: Sequence[int], worth: int) -> list[slice]:
    """Cut ascending lengths into runs that are filled up to their longest, each on its own.

    A run is cut in two where that saves more than `worth` samples of filling.
    """
    if not lengths:
        return []
    longest = lengths[-1]
    saved = [at * (longest - lengths[at - 1]) for at in range(len(lengths))]
    at = int(np.argmax(saved))
    if saved[at] <= worth:
        return [slice(0, len(lengths))]
    above = alike(lengths[at:], worth)
    return alike(lengths[:at], worth) + [slice(at + r.start, at + r.stop) for r in above]


def gather(num_exams: int, asked: Sequence[Sitting], answers: Sequence[list[Sums]]) -> list[Sums]:
    """Join the sums of all sittings, exam by exam."""
    found: list[list[Sums]] = [[] for _ in range(num_exams)]
    for sitting, sums in zip(asked, answers, strict=True):
        for index, part in zip(sitting.exams, sums, strict=True):
            found[index].append(part)
    return [parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts]) for parts in found]


def summed(each: NDArray[np.float64], asked: Sequence[Sequence[Samples]]) -> list[list[Sums]]:
    """Loss and hits of every sample, `(2, sittings, samples)`, summed over each sitting's sets.

    All sets of a length are summed at once, with the same bits as one by one.
    """
    by_length: dict[int, list[tuple[int, int, int]]] = {}
    found: list[list[Sums]] = [[] for _ in asked]
    for row, sets in enumerate(asked):
        start = 0
        for part in sets:
            by_length.setdefault(len(part), []).append((row, start, len(found[row])))
            found[row].append(_NONE)
            start += len(part)
    for length, places in by_length.items():
        rows, starts, numbers = zip(*places)
        columns = np.array(starts)[:, None] + np.arange(length)
        # In memory of their own, one set after the other: it is this order that NumPy sums by.
        picked = np.ascontiguousarray(each[:, np.array(rows)[:, None], columns])
        sums = picked.sum(axis=2).T
        for row, number, own in zip(rows, numbers, sums[:, None]):
            found[row][number] = own
    return found


def _portions(parts: list[tuple[int, Samples]], limit: int) -> list[list[tuple[int, Samples]]]:
    """`parts` in runs of at most `limit` samples, or of a single part."""
    runs: list[list[tuple[int, Samples]]] = []
    room = 0
    for part in parts:
        if len(part[1]) > room:
            runs.append([])
            room = limit
        runs[-1].append(part)
        room -= len(part[1])
    return runs
