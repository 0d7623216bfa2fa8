"""Nested groups: rotations, swapped labels, and the truth about them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from sofa_fl.data.concepts import turn
from sofa_fl.data.federated_data import Arrays
from sofa_fl.data.groups import client_groups, draw_swaps, form_groups, form_odd, form_sites
from sofa_fl.data.partition import iid
from sofa_fl.errors import DataError


def random_images(num_samples: int, seed: int = 0, size: int = 6) -> Arrays:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (num_samples, 1, size, size), dtype=np.uint8)
    return Arrays(x, rng.permutation(np.arange(num_samples) % 10), scale=0.5, shift=-1.0)


def test_every_group_has_its_rotation_and_its_labels() -> None:
    train, test = random_images(160), random_images(48, seed=1)
    before = train.x.copy(), train.y.copy()
    parts = iid(160, 48, num_clients=16, seed=0)
    made, made_test, truth = form_groups(train, test, parts, num_rotations=4, num_swaps=2, seed=5)
    identity, swap = draw_swaps(10, 2, seed=5)
    np.testing.assert_array_equal(identity, np.arange(10))
    fine, coarse = truth
    assert fine == tuple(client // 2 for client in range(16))
    assert coarse == tuple(client // 4 for client in range(16))
    for client in range(16):
        for old, new, rows in ((train, made, parts.train), (test, made_test, parts.test)):
            own = rows[client]
            turned = np.rot90(old.x[own], coarse[client], axes=(-2, -1))
            np.testing.assert_array_equal(new.x[own], turned)
            names = swap if fine[client] % 2 else identity
            np.testing.assert_array_equal(new.y[own], names[old.y[own]])
    assert (made.scale, made.shift, made.x.dtype.name) == (0.5, -1.0, "uint8")
    np.testing.assert_array_equal(train.x, before[0])
    np.testing.assert_array_equal(train.y, before[1])


@pytest.mark.parametrize(
    ("num_clients", "num_rotations", "num_swaps", "num_levels"),
    [(16, 4, 2, 2), (16, 4, 1, 1), (16, 1, 2, 1), (16, 1, 1, 0), (8, 4, 2, 1), (4, 4, 1, 0)],
)
def test_levels_that_tell_nothing_are_dropped(
    num_clients: int, num_rotations: int, num_swaps: int, num_levels: int
) -> None:
    images = random_images(32)
    parts = iid(32, 32, num_clients=num_clients, seed=0)
    *_, truth = form_groups(
        images, images, parts, num_rotations=num_rotations, num_swaps=num_swaps, seed=0
    )
    assert len(truth) == num_levels
    assert all(len(level) == num_clients for level in truth)


@given(num_classes=st.integers(2, 12), num_swaps=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_swaps_are_different_exchanges_of_pairs(
    num_classes: int, num_swaps: int, seed: int
) -> None:
    possible = num_classes * (num_classes - 1) // 2
    num_swaps = min(num_swaps, possible + 1)
    swaps = draw_swaps(num_classes, num_swaps, seed)
    assert len({tuple(swap) for swap in swaps}) == num_swaps
    for number, swap in enumerate(swaps):
        np.testing.assert_array_equal(swap[swap], np.arange(num_classes))
        moved = (swap != np.arange(num_classes)).sum()
        assert moved == (2 * max(1, num_classes // 5) if number else 0)
    # One more variant must not change those there are.
    for swap, same in zip(swaps, draw_swaps(num_classes, max(num_swaps - 1, 1), seed)):
        np.testing.assert_array_equal(swap, same)


@pytest.mark.parametrize(
    ("num_classes", "num_swaps", "possible"), [(1, 2, 0), (2, 3, 1), (4, 8, 6)]
)
def test_more_swaps_than_there_are(num_classes: int, num_swaps: int, possible: int) -> None:
    message = f"{num_classes} classes allow {possible} swaps .*num_swaps={num_swaps} "
    with pytest.raises(DataError, match=message):
        draw_swaps(num_classes, num_swaps, seed=0)


def test_quarter_turns_are_exact_and_agree_with_the_others() -> None:
    images = random_images(3).x
    for rotation in range(4):
        turned = turn(images, 90 * rotation)
        np.testing.assert_array_equal(turned, np.rot90(images, rotation, axes=(-2, -1)))
        # Same direction as the interpolated rotations.
        smooth = ndimage.rotate(images, 90 * rotation, axes=(-2, -1), reshape=False, order=1)
        np.testing.assert_array_equal(turned, smooth)
    np.testing.assert_array_equal(turn(images, 450), turn(images, 90))


def test_other_angles_turn_counterclockwise_and_keep_type_and_shape() -> None:
    image = np.zeros((1, 1, 21, 21), dtype=np.uint8)
    image[..., 9:12, 18:21] = 200  # on the right
    turned = turn(image, 120)  # to the upper left
    assert (turned.shape, turned.dtype.name) == (image.shape, "uint8")
    row, column = ndimage.center_of_mass(turned[0, 0])
    assert row == pytest.approx(10 - 9 * np.sin(np.radians(120)), abs=0.3)
    assert column == pytest.approx(10 + 9 * np.cos(np.radians(120)), abs=0.3)


def test_images_that_are_not_square_keep_their_shape() -> None:
    images = random_images(2).x[..., :4]
    for rotation in range(4):
        assert turn(images, 90 * rotation).shape == images.shape
    np.testing.assert_array_equal(turn(images, 180), images[..., ::-1, ::-1])


def test_what_cannot_be_rotated_or_swapped() -> None:
    with pytest.raises(DataError, match=r"got \(3, 4\); set data.num_rotations=1"):
        turn(np.zeros((3, 4)), 90)
    targets = Arrays(np.zeros((8, 4)), np.zeros(8, dtype=np.float32))
    parts = iid(8, 8, num_clients=4, seed=0)
    with pytest.raises(DataError, match=r"got float32 and float32 targets; .*num_swaps=1"):
        form_groups(targets, targets, parts, num_rotations=1, num_swaps=2, seed=0)


@pytest.mark.parametrize("num_clients", [0, 7, 20])
def test_clients_must_fill_the_groups(num_clients: int) -> None:
    with pytest.raises(DataError, match=rf"multiple of the 8 groups .*got {num_clients}$"):
        client_groups(num_clients, 4, 2)


def test_the_odd_one_calls_every_class_otherwise() -> None:
    train, test = random_images(120), random_images(40, seed=1)
    parts = iid(120, 40, num_clients=4, seed=0)
    made, made_test, truth = form_odd(train, test, parts, seed=3)
    assert truth == ((0, 0, 0, 1),)
    for old, new, rows in ((train, made, parts.train), (test, made_test, parts.test)):
        np.testing.assert_array_equal(new.x, old.x)
        alike, odd = np.concatenate(rows[:3]), rows[3]
        np.testing.assert_array_equal(new.y[alike], old.y[alike])
        (shift,) = set((new.y[odd] - old.y[odd]) % 10)
        assert shift == (made.y[parts.train[3]] - train.y[parts.train[3]])[0] % 10 != 0
    own = parts.train[3]
    others = [form_odd(train, test, parts, seed=s)[0].y[own] for s in range(20)]
    shifts = {int(y[0] - train.y[own][0]) % 10 for y in others}
    assert len(shifts) > 3


def test_sites_are_turned_within_their_regions_and_labels_stay() -> None:
    train, test = random_images(160), random_images(48, seed=1)
    parts = iid(160, 48, num_clients=16, seed=0)
    made, made_test, truth = form_sites(train, test, parts, num_regions=4, num_sites=2)
    sites, regions = truth
    assert sites == tuple(client // 2 for client in range(16))
    assert regions == tuple(client // 4 for client in range(16))
    for client in range(16):
        degrees = 45 * regions[client] + 15 * (sites[client] % 2)
        for old, new, rows in ((train, made, parts.train), (test, made_test, parts.test)):
            own = rows[client]
            np.testing.assert_array_equal(new.x[own], turn(old.x[own], degrees))
            np.testing.assert_array_equal(new.y[own], old.y[own])


@pytest.mark.parametrize(
    ("clients", "regions", "sites", "words"),
    [(16, 4, 3, "2 sites in each of 4 regions"), (20, 5, 1, "2 sites"), (12, 4, 2, "multiple of")],
)
def test_sites_that_do_not_fit(clients: int, regions: int, sites: int, words: str) -> None:
    images = random_images(60)
    parts = iid(60, 60, num_clients=clients, seed=0)
    with pytest.raises(DataError, match=words):
        form_sites(images, images, parts, num_regions=regions, num_sites=sites)
