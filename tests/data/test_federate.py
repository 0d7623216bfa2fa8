"""From a configuration to a federation: one seed, one federation, whatever the partition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sofa_fl.data.config import DataConfig, PartitionName
from sofa_fl.data.federate import federate
from sofa_fl.data.federated_data import Arrays, FederatedData
from sofa_fl.data.partition import hold_out
from sofa_fl.errors import DataError
from tests.data.idx_files import write_idx

PARTITIONS = ("dirichlet", "iid", "shards", "groups")


def images(num_samples: int, num_classes: int = 10, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (num_samples, 1, 4, 4), dtype=np.uint8)
    return Arrays(x, rng.permutation(np.arange(num_samples) % num_classes), scale=2.0, shift=-1.0)


ARRAYS = images(800), images(160, seed=1)
SMALL = DataConfig(num_clients=16)


def assert_same(one: FederatedData, other: FederatedData) -> None:
    for mine, same in zip(one.clients, other.clients, strict=True):
        np.testing.assert_array_equal(mine.train, same.train)
        np.testing.assert_array_equal(mine.holdout, same.holdout)
        np.testing.assert_array_equal(mine.test, same.test)
    np.testing.assert_array_equal(one.train.x, other.train.x)
    np.testing.assert_array_equal(one.train.y, other.train.y)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_sample_has_one_owner(partition: str) -> None:
    config = TypeAdapter(DataConfig).validate_python({"partition": partition, "num_clients": 16})
    data = federate(config, 0, ARRAYS)
    owned = np.concatenate([rows for c in data.clients for rows in (c.train, c.holdout)])
    np.testing.assert_array_equal(np.sort(owned), np.arange(800))
    tested = np.concatenate([client.test for client in data.clients])
    np.testing.assert_array_equal(np.sort(tested), np.arange(160))
    for client in data.clients:
        num_rows = len(client.train) + len(client.holdout)
        assert num_rows >= config.min_samples
        assert len(client.holdout) == max(1, round(0.05 * num_rows))
        assert len(client.test) >= 1
    assert (data.num_outputs, len(data.clients)) == (10, 16)
    assert (data.train.scale, data.test.shift) == (2.0, -1.0)
    assert len(data.truth) == (2 if partition == "groups" else 0)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_same_seed_same_federation(partition: str) -> None:
    config = TypeAdapter(DataConfig).validate_python(
        {"partition": partition, "num_clients": 16, "num_train": 400, "num_test": 80}
    )
    assert_same(federate(config, 7, ARRAYS), federate(config, 7, ARRAYS))
    with pytest.raises(AssertionError):
        assert_same(federate(config, 7, ARRAYS), federate(config, 8, ARRAYS))


def test_given_arrays_are_not_changed() -> None:
    before = ARRAYS[0].x.copy(), ARRAYS[0].y.copy()
    federate(replace(SMALL, partition="groups"), 0, ARRAYS)
    np.testing.assert_array_equal(ARRAYS[0].x, before[0])
    np.testing.assert_array_equal(ARRAYS[0].y, before[1])


def test_subsample_keeps_pairs_and_the_size_of_the_network() -> None:
    train = Arrays(np.arange(800, dtype=np.float32)[:, None], np.arange(800) % 400)
    data = federate(
        DataConfig(num_clients=2, partition="iid", num_train=20, num_test=5), 0, (train, train)
    )
    assert (len(data.train), len(data.test), data.num_outputs) == (20, 5, 400)
    np.testing.assert_array_equal(data.train.x[:, 0].astype(int) % 400, data.train.y)
    assert len(np.unique(data.train.x)) == 20


@pytest.mark.parametrize("key", ["num_train", "num_test"])
def test_more_samples_than_there_are(key: str) -> None:
    config = TypeAdapter(DataConfig).validate_python({key: 801})
    with pytest.raises(DataError, match=rf"data.{key} must be between 1 and the .* got 801"):
        federate(config, 0, ARRAYS)


@given(
    num_rows=st.integers(1, 60),
    fraction=st.one_of(st.just(0.0), st.floats(0, 1, exclude_max=True)),
    seed=st.integers(0, 2**32),
)
def test_hold_out(num_rows: int, fraction: float, seed: int) -> None:
    rows = np.arange(100, 100 + num_rows)
    train, held = hold_out(rows, fraction, seed, client=3)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), rows)
    assert len(train) >= 1
    assert (len(held) > 0) == (fraction > 0 and num_rows > 1)
    assert abs(len(held) - fraction * num_rows) <= 1


def test_no_holdout() -> None:
    data = federate(replace(SMALL, holdout=0.0), 0, ARRAYS)
    assert data.sizes.sum() == 800


@pytest.mark.parametrize(("shape", "num_outputs"), [((96,), 1), ((96, 3), 3)])
def test_regression(shape: tuple[int, ...], num_outputs: int) -> None:
    # float64 on purpose: federate brings given arrays to the types that engines expect.
    own = Arrays(np.ones((96, 5)), np.linspace(0, 1, np.prod(shape)).reshape(shape))
    data = federate(DataConfig(num_clients=4, partition="iid"), 0, (own, own))
    assert data.num_outputs == num_outputs
    assert (data.train.x.dtype.name, data.train.y.dtype.name) == ("float32", "float32")
    for partition in ("dirichlet", "shards", "groups"):
        config = TypeAdapter(DataConfig).validate_python(
            {"partition": partition, "num_clients": 4, "num_rotations": 1}
        )
        with pytest.raises(DataError, match=r"float32 and float32|use data.partition=iid"):
            federate(config, 0, (own, own))


def test_training_and_test_samples_must_be_alike() -> None:
    train, test = ARRAYS
    for other in (replace(test, x=test.x[..., :3]), replace(test, y=test.y.astype(float))):
        with pytest.raises(DataError, match="must have the same shapes and kind of targets"):
            federate(SMALL, 0, (train, other))


def test_negative_labels_are_refused() -> None:
    train, test = ARRAYS
    with pytest.raises(DataError, match="at least 0, got -1"):
        federate(SMALL, 0, (replace(train, y=train.y - 1), test))


def test_groups_that_do_not_fill() -> None:
    with pytest.raises(DataError, match=r"multiple of the 8 groups .* got 20"):
        federate(DataConfig(partition="groups"), 0, ARRAYS)


def test_loads_by_name(tmp_path: Path) -> None:
    (tmp_path / "plants").mkdir()
    for split, arrays in zip(("train", "test"), ARRAYS):
        write_idx(tmp_path / "plants" / f"{split}-images", arrays.x[:, 0])
        write_idx(tmp_path / "plants" / f"{split}-labels", arrays.y.astype(np.uint8))
    config = replace(SMALL, name="plants", dir=str(tmp_path))
    loaded = federate(config, 0)
    assert_same(loaded, federate(config, 0, ARRAYS))


def test_the_papers_federation() -> None:
    data = federate(DataConfig(), 42)
    assert (len(data.clients), data.num_outputs) == (20, 10)
    assert data.sizes.sum() == pytest.approx(57_000, abs=20)
    for client in data.clients:
        mix = np.bincount(data.train.y[client.train], minlength=10) / len(client.train)
        test_mix = np.bincount(data.test.y[client.test], minlength=10) / len(client.test)
        assert np.abs(mix - test_mix).max() < 0.05


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_clients", 0),
        ("alpha", 0.0),
        ("min_samples", 0),
        ("shards_per_client", 0),
        ("num_rotations", 0),
        ("num_swaps", 0),
        ("holdout", 1.0),
        ("holdout", -0.1),
        ("num_train", 0),
        ("num_test", 0),
        ("partition", "random"),
    ],
)
def test_ranges_are_validated(key: str, value: object) -> None:
    with pytest.raises(ValidationError, match=key):
        TypeAdapter(DataConfig).validate_python({key: value})


def test_validation_scores_on_training_samples_put_aside() -> None:
    train, test = images(120), images(60, seed=1)
    config = DataConfig(num_clients=4, partition="iid", score_on="validation")
    found = federate(config, 3, (train, test))
    assert (len(found.train), len(found.test)) == (100, 20)
    together = np.concatenate([found.train.x, found.test.x]).reshape(120, -1)
    assert sorted(map(bytes, together)) == sorted(map(bytes, train.x.reshape(120, -1)))
    assert_same(found, federate(config, 3, (train, test)))
    assert not np.array_equal(found.test.x, federate(config, 4, (train, test)).test.x)


def test_samples_are_a_limit_for_every_client() -> None:
    config = DataConfig(num_clients=10, alpha=0.3, holdout=0.1)
    whole, few = federate(config, 0), federate(replace(config, samples=60), 0)
    for before, after in zip(whole.clients, few.clients):
        had, has = (np.concatenate([own.train, own.holdout]) for own in (before, after))
        assert len(has) == min(60, len(had))
        assert set(has) <= set(had)
        np.testing.assert_array_equal(before.test, after.test)


@pytest.mark.parametrize("partition", ["odd", "sites"])
def test_groups_of_other_kinds_are_dealt_out_evenly(partition: PartitionName) -> None:
    config = DataConfig(num_clients=16, partition=partition, samples=25, num_test=160)
    data = federate(config, 0)
    assert {len(c.train) + len(c.holdout) for c in data.clients} == {25}
    assert len(data.truth) == {"odd": 1, "sites": 2}[partition]
