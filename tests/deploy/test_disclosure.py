"""What a machine has disclosed, and that its cap holds over restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sofa_fl.deploy.machine.disclosure import Disclosure, FileStore, MemoryStore


def rows(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_no_more_leaves_than_the_cap_allows() -> None:
    record = Disclosure(MemoryStore({}), "left", 10, 0.3)
    assert record.release(rows(5, 1, 7, 2, 9)).tolist() == [5, 1, 7]
    assert record.release(rows(2, 3)).tolist() == []
    assert record.release(rows(2, 1, 3, 5)).tolist() == [1, 5], (
        "what is disclosed already may go again"
    )


@pytest.mark.parametrize("cap", [0.0, 0.09])
def test_a_cap_of_less_than_a_sample_lets_nothing_out(cap: float) -> None:
    values: dict[str, bytes] = {}
    assert len(Disclosure(MemoryStore(values), "left", 10, cap).release(np.arange(10))) == 0
    assert not values


def test_a_lowered_cap_lets_nothing_new_out() -> None:
    store = MemoryStore({})
    Disclosure(store, "left", 10, 0.5).release(np.arange(5))
    assert Disclosure(store, "left", 10, 0.2).release(np.arange(10)).tolist() == [0, 1, 2, 3, 4]
    assert Disclosure(store, "left", 10, 0.0).release(np.arange(10)).tolist() == []


def test_numbers_that_are_none_of_its_samples_are_passed_over() -> None:
    record = Disclosure(MemoryStore({}), "left", 4, 1.0)
    assert record.release(rows(-1, 4, 2, 2, 99)).tolist() == [2]


def test_a_machine_remembers_over_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    Disclosure(FileStore(folder), "left", 20, 0.5).release(np.arange(10))
    again = Disclosure(FileStore(folder), "left", 20, 0.5)
    assert again.disclosed().nonzero()[0].tolist() == list(range(10))
    assert again.release(np.arange(10, 20)).tolist() == []
