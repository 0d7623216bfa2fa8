"""Data that change from round to round: a script says who sees what from when on.

Every pair of a client and a concept gets rows of its own, so samples stay row numbers of one array
and nothing but the stage says which of them a client has now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import Arrays, ClientData, FederatedData, Samples, Stage
from sofa_fl.data.partition import Parts, hold_out
from sofa_fl.errors import DataError


@dataclass(frozen=True, slots=True)
class Concept:
    """What some clients see: images rotated counterclockwise, and renamed labels.

    Attributes:
        degrees: The angle of rotation.
        labels: The new label of every class; None keeps the labels.
    """

    degrees: float = 0.0
    labels: tuple[int, ...] | None = None

    def apply(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Copies of samples under this concept."""
        return turn(x, self.degrees), y if self.labels is None else np.array(self.labels)[y]


@dataclass(frozen=True, slots=True)
class Phase:
    """From round `since` on, the concept of every client that is present."""

    since: int
    concepts: Mapping[int, Concept]


Script = Sequence[Phase]


def perform(
    script: Script,
    train: Arrays,
    test: Arrays,
    parts: Parts,
    *,
    num_outputs: int,
    holdout: float,
    seed: int,
) -> FederatedData:
    """The data of a script: clients of one concept are one true group.

    `parts` has the rows of every client that is ever there. A client sees the same samples by every
    concept, and holds out the same ones; where a concept comes back, so do its rows.
    """
    if strangers := {c for phase in script for c in phase.concepts} - set(range(len(parts.train))):
        raise DataError(f"the script names clients {sorted(strangers)}, which have no rows")
    played = list(dict.fromkeys(cast for phase in script for cast in phase.concepts.items()))
    if not played:
        raise DataError("a script must give a concept to at least one client, got none")
    for _, concept in played:
        _check_labels(concept, train, num_outputs)
    if missing := set(range(len(parts.train))) - {client for client, _ in played}:
        raise DataError(f"the script does not mention clients {sorted(missing)}")
    trains, train = _copies(train, parts.train, played)
    tests, test = _copies(test, parts.test, played)
    rows: dict[tuple[int, Concept], ClientData] = {}
    for cast, own, scored in zip(played, trains, tests):
        kept, held = hold_out(np.arange(len(own)), holdout, seed, cast[0])
        rows[cast] = ClientData(own[kept], own[held], scored)
    first = {client: rows[client, concept] for client, concept in reversed(played)}
    stages = tuple(
        Stage(
            phase.since,
            {client: rows[client, concept] for client, concept in sorted(phase.concepts.items())},
            (tuple(groups.get(client, -1) for client in sorted(first)),),
        )
        for phase, groups in zip(script, true_groups(script))
    )
    clients = tuple(first[client] for client in sorted(first))
    sources = np.concatenate([parts.train[client] for client, _ in played])
    return FederatedData(
        train, test, clients, num_outputs, stages[0].truth, stages, sources=sources
    )


def turn(images: NDArray[Any], degrees: float) -> NDArray[Any]:
    """Turn images (the last two axes) counterclockwise.

    Quarter turns are exact; others interpolate linearly, and what comes in from outside is 0.
    """
    if degrees % 360 == 0:
        return images
    if images.ndim < 3:
        raise DataError(
            f"rotations need images of shape (n, ..., height, width), got {images.shape}; set "
            "data.num_rotations=1, or degrees=0 in concepts of your own"
        )
    height, width = images.shape[-2:]
    if degrees % 90 == 0 and (height == width or degrees % 180 == 0):
        return np.rot90(images, round(degrees / 90), axes=(-2, -1))
    from scipy import ndimage, sparse  # here, since to load them takes longer than a wrong key

    # What it does to every single pixel is what it does to all: many images are one product.
    pixels = np.eye(height * width).reshape(-1, height, width)
    turned = ndimage.rotate(pixels, degrees, axes=(-2, -1), reshape=False, order=1)
    by = sparse.csr_matrix(turned.reshape(height * width, -1).T)
    flat = images.reshape(-1, height * width).T.astype(np.float32)
    found = (by @ flat).T.reshape(images.shape)
    if images.dtype.kind in "iu":
        limits = np.iinfo(images.dtype)
        found = np.clip(np.rint(found), limits.min, limits.max)
    return np.asarray(found.astype(images.dtype))


def _copies(
    arrays: Arrays, rows: Sequence[Samples], played: Sequence[tuple[int, Concept]]
) -> tuple[list[Samples], Arrays]:
    """Rows of their own for all that is played, and the arrays that have them."""
    sizes = [len(rows[client]) for client, _ in played]
    ends = np.cumsum(sizes)
    found = [np.arange(end - size, end) for size, end in zip(sizes, ends)]
    x = np.empty((int(ends[-1]), *arrays.x.shape[1:]), arrays.x.dtype)
    y = np.empty((int(ends[-1]), *arrays.y.shape[1:]), arrays.y.dtype)
    for concept in dict.fromkeys(concept for _, concept in played):
        which = [at for at, (_, other) in enumerate(played) if other == concept]
        old = np.concatenate([rows[played[at][0]] for at in which])
        new = np.concatenate([found[at] for at in which])
        x[new], y[new] = concept.apply(arrays.x[old], arrays.y[old])
    return found, replace(arrays, x=x, y=y)


def true_groups(script: Script) -> list[dict[int, int]]:
    """The group of every client, phase by phase: one per concept.

    A concept keeps its number, also when it comes back. A new one takes over that of the group most
    of its clients come from, if nobody is left there: whoever turns together stays one group.
    """
    numbers: dict[Concept, int] = {}
    found: list[dict[int, int]] = []
    next_number = 0
    for phase in script:
        there = dict.fromkeys(phase.concepts.values())
        taken = {numbers[concept] for concept in there if concept in numbers}
        for concept in there:
            if concept in numbers:
                continue
            clients = [client for client, other in phase.concepts.items() if other == concept]
            last = found[-1] if found else {}
            before = Counter(last[client] for client in clients if client in last)
            number = next((n for n, _ in before.most_common(1) if n not in taken), next_number)
            next_number = max(next_number, number + 1)
            numbers = {other: n for other, n in numbers.items() if n != number}
            numbers[concept] = number
            taken.add(number)
        found.append({client: numbers[concept] for client, concept in phase.concepts.items()})
    return found


def _check_labels(concept: Concept, train: Arrays, num_classes: int) -> None:
    if concept.labels is None:
        return
    if train.y.dtype.kind == "f":
        raise DataError(
            f"swapped labels need integer class labels, got {train.y.dtype} targets; remove the "
            "labels from your concepts"
        )
    if len(concept.labels) != num_classes or not set(concept.labels) <= set(range(num_classes)):
        raise DataError(
            f"a concept must give a class for each of the {num_classes} classes, got "
            f"{concept.labels}"
        )
