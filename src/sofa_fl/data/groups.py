"""Groups of clients with known truth: nested ones that contradict each other or not, an odd one.

Client `i` is in group `i // (clients per group)`; group `g` has rotation `g // num_swaps` and
swap variant `g % num_swaps`, or is site `g % num_sites` of region `g // num_sites`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sofa_fl.data.concepts import Concept
from sofa_fl.data.federated_data import Arrays, Samples, Truth
from sofa_fl.data.partition import Parts
from sofa_fl.errors import DataError
from sofa_fl.seeding import rng_for

REGION_DEGREES, SITE_DEGREES = 45.0, 15.0  # from one to the next


def form_groups(
    train: Arrays, test: Arrays, parts: Parts, *, num_rotations: int, num_swaps: int, seed: int
) -> tuple[Arrays, Arrays, Truth]:
    """Rotate and relabel every client's rows, in copies, and say which client is in which group.

    The truth has the groups (rotation, swap) first, then the rotations.
    """
    group = client_groups(len(parts.train), num_rotations, num_swaps)
    num_classes = _num_classes(train, test) if num_swaps > 1 else 0
    concepts = group_concepts(
        num_classes, num_rotations=num_rotations, num_swaps=num_swaps, seed=seed
    )
    shown = [concepts[number] for number in group]
    levels = group.tolist(), (group // num_swaps).tolist()
    return show(train, parts.train, shown), show(test, parts.test, shown), _telling(levels)


def form_odd(
    train: Arrays, test: Arrays, parts: Parts, *, seed: int
) -> tuple[Arrays, Arrays, Truth]:
    """Let the last client call every class by another one's name, and say so.

    Its labels are those of the others, shifted by a number that the seed draws: not one sample of
    it agrees with what the others have learned.
    """
    num_clients, num_classes = len(parts.train), _num_classes(train, test)
    if num_classes < 2:
        raise DataError(
            f"data.partition=odd needs at least two classes to rename, got {num_classes}"
        )
    shift = int(rng_for(seed, "groups", "odd").integers(1, num_classes))
    names = (np.arange(num_classes) + shift) % num_classes
    shown = [Concept()] * (num_clients - 1) + [Concept(labels=tuple(names.tolist()))]
    truth = _telling([[*[0] * (num_clients - 1), 1]])
    return show(train, parts.train, shown), show(test, parts.test, shown), truth


def form_sites(
    train: Arrays, test: Arrays, parts: Parts, *, num_regions: int, num_sites: int
) -> tuple[Arrays, Arrays, Truth]:
    """Turn every client's images as its region and its site do, and say which these are.

    Sites of one region are nearer to each other than to any other region, and labels keep their
    meaning: 150° at most by default, so that no 6 looks like a 9. The truth has the sites first,
    then the regions.
    """
    widest = (num_sites - 1) * SITE_DEGREES
    if widest >= REGION_DEGREES / 2 or (num_regions - 1) * REGION_DEGREES + widest >= 180:
        raise DataError(
            "data.partition=sites allows at most 2 sites in each of 4 regions, got "
            f"data.num_regions={num_regions}, data.num_sites={num_sites}"
        )
    num_clients, num_groups = len(parts.train), num_regions * num_sites
    if num_clients % num_groups:
        raise DataError(
            f"data.num_clients must be a multiple of the {num_groups} sites "
            f"({num_regions} regions x {num_sites} sites), got {num_clients}"
        )
    site = np.repeat(np.arange(num_groups), num_clients // num_groups)
    region, inner = np.divmod(site, num_sites)
    degrees = region * REGION_DEGREES + inner * SITE_DEGREES
    shown = [Concept(float(by)) for by in degrees]
    truth = _telling([site.tolist(), region.tolist()])
    return show(train, parts.train, shown), show(test, parts.test, shown), truth


def show(arrays: Arrays, rows: Sequence[Samples], concepts: Sequence[Concept]) -> Arrays:
    """Every client's rows as its concept has them, in a copy."""
    x, y = arrays.x.copy(), arrays.y.copy()
    for concept in dict.fromkeys(concepts):
        samples = np.concatenate([own for own, other in zip(rows, concepts) if other == concept])
        x[samples], y[samples] = concept.apply(x[samples], y[samples])
    return replace(arrays, x=x, y=y)


def group_concepts(
    num_classes: int, *, num_rotations: int, num_swaps: int, seed: int
) -> list[Concept]:
    """What every group sees, by its number."""
    swaps = draw_swaps(num_classes, num_swaps, seed) if num_swaps > 1 else [None]
    return [
        Concept(360 * rotation / num_rotations, None if swap is None else tuple(swap.tolist()))
        for rotation in range(num_rotations)
        for swap in swaps
    ]


def client_groups(num_clients: int, num_rotations: int, num_swaps: int) -> Samples:
    """The group of every client; all groups have the same number of clients."""
    num_groups = num_rotations * num_swaps
    if num_groups < 1 or num_clients < 1 or num_clients % num_groups:
        raise DataError(
            f"data.num_clients must be a multiple of the {num_groups} groups "
            f"({num_rotations} rotations x {num_swaps} swaps), got {num_clients}"
        )
    return np.repeat(np.arange(num_groups), num_clients // num_groups)


def draw_swaps(num_classes: int, num_swaps: int, seed: int) -> list[Samples]:
    """Permutations of the classes, all different; the first is the identity.

    Each of the others exchanges disjoint pairs, drawn for that variant: a fifth as many as
    there are classes, so that clients who differ only in labels stay nearer than clients who
    differ in what they see.
    """
    num_pairs = _num_pairs(num_classes)
    num_possible = math.factorial(num_classes) // (
        2**num_pairs * math.factorial(num_pairs) * math.factorial(num_classes - 2 * num_pairs)
    )
    if num_pairs == 0 or num_swaps - 1 > num_possible:
        raise DataError(
            f"{num_classes} classes allow {num_possible if num_pairs else 0} swaps besides the "
            f"identity, but data.num_swaps={num_swaps} needs {num_swaps - 1}; lower it"
        )
    swaps = [np.arange(num_classes)]
    for variant in range(1, num_swaps):
        rng = rng_for(seed, "groups", "swap", variant)
        swap = _draw_swap(num_classes, rng)
        # There is one left that nobody has, so this ends; repeats are rare but for few classes.
        while any(np.array_equal(swap, other) for other in swaps):
            swap = _draw_swap(num_classes, rng)
        swaps.append(swap)
    return swaps


def _draw_swap(num_classes: int, rng: np.random.Generator) -> Samples:
    order, num_pairs = rng.permutation(num_classes), _num_pairs(num_classes)
    left, right = order[:num_pairs], order[num_pairs : 2 * num_pairs]
    swap = np.arange(num_classes)
    swap[left], swap[right] = right, left
    return swap


def _num_pairs(num_classes: int) -> int:
    return min(max(1, num_classes // 5), num_classes // 2)


def _num_classes(train: Arrays, test: Arrays) -> int:
    if train.y.dtype.kind == "f" or test.y.dtype.kind == "f":
        raise DataError(
            f"swapped labels need integer class labels, got {train.y.dtype} and {test.y.dtype} "
            "targets; set data.num_swaps=1"
        )
    return max(train.num_classes, test.num_classes)


def _telling(levels: Sequence[Sequence[int]]) -> Truth:
    """Drop levels that tell nothing: one group only, one client per group, or the level before."""
    truth: list[tuple[int, ...]] = []
    for level in map(tuple, levels):
        if 1 < len(set(level)) < len(level) and level not in truth:
            truth.append(level)
    return tuple(truth)
