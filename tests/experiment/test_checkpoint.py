"""A state on disk and back: every type that a state may hold, and files that are no such thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from typing_extensions import TypeAliasType

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.checkpoint import load, pack, save
from sofa_fl.models.flat import Vector
from sofa_fl.topology.tree import NodeId, Tree
from tests.methods.cases import assert_equal


@dataclass(frozen=True, slots=True)
class Inner:
    rows: NDArray[np.int64]
    name: str


@dataclass(frozen=True)
class Everything:
    model: Vector
    models: tuple[Vector, ...]
    by_node: Mapping[NodeId, Vector]
    by_name: dict[str, NDArray[np.int64]]
    nested: Mapping[NodeId, Mapping[NodeId, float]]
    inner: Inner
    maybe: Inner | None
    maybe_not: Vector | None
    tree: Tree
    flag: bool
    number: int
    loss: float
    not_a_number: float
    empty: NDArray[np.int64]
    none: tuple[int, ...]
    mask: NDArray[np.bool_]


def everything() -> Everything:
    one, two, root = NodeId(1), NodeId(2), NodeId(12)
    return Everything(
        model=torch.randn(5),
        models=(torch.randn(3), torch.randn(2, 2)),
        by_node={two: torch.zeros(2), root: torch.ones(2), one: torch.randn(2)},
        by_name={"b": np.arange(3), "a": np.arange(2), "with.dot": np.arange(4)},
        nested={two: {root: 0.1, two: 1 / 3}, one: {}},
        inner=Inner(np.arange(7), "inner\n'quoted' ü"),
        maybe=Inner(np.arange(2), ""),
        maybe_not=None,
        tree=Tree({root: None, two: root, one: root}, (one, two), 20),
        flag=True,
        number=2**62,
        loss=1e-300,
        not_a_number=float("nan"),
        empty=np.empty(0, dtype=np.int64),
        none=(),
        mask=np.array([True, False]),
    )


def test_everything_comes_back_as_it_was(tmp_path: Path) -> None:
    state, file = everything(), tmp_path / "a.safetensors"
    save(file, pack(state=state, other=Inner(np.arange(3), "other")))
    assert_equal(load(file, "state", Everything), state)
    assert_equal(load(file, "other", Inner), Inner(np.arange(3), "other"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_loaded_state_can_be_saved_again(tmp_path: Path) -> None:
    state, found = everything(), []
    for name in ("a", "b"):
        save(tmp_path / name, pack(state=state))
        state = load(tmp_path / name, "state", Everything)
        with safe_open(tmp_path / name, framework="np") as file:
            found.append(file.metadata())
    assert found[0] == found[1], "and with it the checksum of all that is saved"


def test_a_loaded_state_does_not_change_with_its_file(tmp_path: Path) -> None:
    """What a resumed run keeps stays, also when its checkpoint is written over."""
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    state = everything()
    save(old, pack(state=state))
    loaded = load(old, "state", Everything)
    save(new, pack(state=everything()))
    old.write_bytes(new.read_bytes())  # into the same file, as `cp` does
    assert_equal(loaded, state)


def test_others_can_read_it(tmp_path: Path) -> None:
    """It is the safetensors format, to their own library too; widths mix without a gap."""
    parts = {"a": np.arange(3, dtype=np.uint8), "b": torch.randn(2, 3), "c": np.array(2.5)}
    save(tmp_path / "a", pack(state=parts))
    read = load_file(tmp_path / "a")
    assert set(read) == {"state.a", "state.b", "state.c"}
    for name, part in parts.items():
        assert torch.equal(read[f"state.{name}"], torch.as_tensor(part))


def test_mappings_alone_are_states_too(tmp_path: Path) -> None:
    """As in the docstring of the methods."""
    state: dict[NodeId, Vector] = {NodeId(3): torch.randn(4), NodeId(1): torch.randn(4)}
    save(tmp_path / "a", pack(state=state))
    assert_equal(load(tmp_path / "a", "state", dict[NodeId, Vector]), state)


def test_a_model_alone_is_a_state_too(tmp_path: Path) -> None:
    state = torch.randn(4)
    save(tmp_path / "a", pack(state=state))
    assert torch.equal(load(tmp_path / "a", "state", torch.Tensor), state)


def test_memory_that_is_shared_is_written_twice(tmp_path: Path) -> None:
    """The same tensor twice, rows of one matrix, a slice, a transpose: a file holds them apart."""
    block = torch.randn(3, 4)
    state = {
        NodeId(i): tensor
        for i, tensor in enumerate([block, block, block[0], block[1], block.T, block[:, 1:3]])
    }
    before = {node: tensor.clone() for node, tensor in state.items()}
    save(tmp_path / "a", pack(state=state))
    loaded = load(tmp_path / "a", "state", dict[NodeId, Vector])
    assert all(torch.equal(loaded[node], tensor) for node, tensor in before.items())


def test_arrays_that_are_views_or_read_only(tmp_path: Path) -> None:
    rows = np.arange(20)
    rows.setflags(write=False)
    state = {NodeId(0): rows[::3], NodeId(1): rows[5:2:-1], NodeId(2): rows}
    save(tmp_path / "a", pack(state=state))
    loaded = load(tmp_path / "a", "state", dict[NodeId, NDArray[np.int64]])
    for node, expected in state.items():
        np.testing.assert_array_equal(loaded[node], expected)


@pytest.mark.parametrize(
    "value", [{1, 2}, 1j, b"x", np.int64(3), object(), np.array([1j])], ids=repr
)
def test_what_a_state_cannot_hold(value: object, tmp_path: Path) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=rf"a state cannot hold a {kind} \(at state\.1\)"):
        save(tmp_path / "a", pack(state=(1, value)))
    assert not list(tmp_path.iterdir())


def damage(file: Path, how: str) -> None:
    whole = file.read_bytes()
    broken = {
        "empty": b"",
        "a few bytes": whole[:5],
        "half of the header": whole[:60],
        "all but the last byte": whole[:-1],
        "half": whole[: len(whole) // 2],
        "no such file at all": b"PK\x03\x04" + bytes(100),
        "zeros": bytes(len(whole)),
    }
    file.write_bytes(broken[how])


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "a few bytes",
        "half of the header",
        "all but the last byte",
        "half",
        "no such file at all",
        "zeros",
    ],
)
def test_a_damaged_file_is_a_run_error(how: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save(file, pack(state=everything()))
    damage(file, how)
    with pytest.raises(RunError, match=r"the checkpoint .*a\.safetensors is damaged"):
        load(file, "state", Everything)


def test_a_file_that_is_not_there_or_lacks_a_part(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        load(tmp_path / "none", "state", Everything)
    save(tmp_path / "a", pack(other=Inner(np.arange(3), "")))
    with pytest.raises(RunError):
        load(tmp_path / "a", "state", Everything)


@pytest.mark.parametrize("state", [(1, 2), {"x": 1}, everything().tree, torch.ones(3)], ids=type)
def test_a_state_of_another_kind_is_a_run_error(state: Any, tmp_path: Path) -> None:
    save(tmp_path / "a", pack(state=state))
    with pytest.raises(RunError):
        load(tmp_path / "a", "state", Everything)


def test_an_old_file_stays_whole_when_saving_fails(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save(file, pack(state=Inner(np.arange(3), "old")))
    with pytest.raises(TypeError):
        save(file, pack(state={1, 2}))
    assert load(file, "state", Inner).name == "old"


def test_a_folder_that_is_gone_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write the checkpoint"):
        save(tmp_path / "none" / "a.safetensors", pack(state=everything()))


def test_arrays_of_a_type_with_a_name_of_its_own(tmp_path: Path) -> None:
    """As newer versions of NumPy have it: `NDArray` is then no array type to look at."""
    named = TypeAliasType("named", NDArray[np.int64])
    save(tmp_path / "a", pack(state={"rows": np.arange(3)}))
    found: Any = load(tmp_path / "a", "state", dict[str, named])
    np.testing.assert_array_equal(found["rows"], np.arange(3))
