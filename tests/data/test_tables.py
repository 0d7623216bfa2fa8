from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sofa_fl.data.csv_files import read_csv
from sofa_fl.data.tables import from_columns, from_partitions
from sofa_fl.errors import DataError


class Dataset:
    """A stand-in for a Hugging Face dataset: columns by name, rows by number, `column_names`."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = columns
        self.column_names = list(columns)

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return {name: column[key] for name, column in self.columns.items()}
        return self.columns[key]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def picture(value: int, mode: str = "L") -> Image.Image:
    return Image.new(mode, (3, 2), value if mode == "L" else (value, 0, 0))


def test_a_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\ufeffage, city ,score\n1,Rome,0.5\n\n2, Oslo,1\n", encoding="utf-8")
    table = read_csv(file)
    assert list(table) == ["age", "city", "score"]
    assert [table[name].dtype.kind for name in table] == ["i", "U", "f"]
    assert table["city"].tolist() == ["Rome", "Oslo"]
    file.write_text("a;b\n1;2\n")
    assert read_csv(file, delimiter=";")["b"].tolist() == [2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", "at least one row"),
        ("", "at least one row"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells"),
    ],
)
def test_csv_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        read_csv(tmp_path / "a.csv")
    with pytest.raises(DataError, match="cannot read"):
        read_csv(tmp_path / "b.csv")


def test_columns_of_numbers_and_text_targets() -> None:
    table = {"a": [1, 2, 3], "b": [0.5, 0.25, 0], "c": ["x", "y", "x"]}
    arrays = from_columns(table, x=["a", "b"], y="c")
    np.testing.assert_array_equal(arrays.x, np.array([[1, 0.5], [2, 0.25], [3, 0]], np.float32))
    assert (arrays.y.tolist(), arrays.scale) == ([0, 1, 0], 1.0)
    assert from_columns(table, x=["a"], y="c", classes=["y", "x"]).y.tolist() == [1, 0, 1]
    assert from_columns(table, x="a", y="b").y.dtype == np.float32
    assert from_columns(table, x="a", y="b").x.shape == (3, 1)


def test_images_have_their_channels_first() -> None:
    grey = from_columns(Dataset(image=[picture(0), picture(9)], label=[0, 1]), x="image", y="label")
    assert (grey.x.shape, grey.x.dtype.name, grey.shift) == ((2, 1, 2, 3), "uint8", -1.0)
    red = from_columns(Dataset(image=[picture(7, "RGB")], label=[0]), x="image", y="label", scale=1)
    assert (red.x.shape, red.x[0, 0, 0, 0], red.x[0, 1].max(), red.scale) == ((1, 3, 2, 3), 7, 0, 1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"x": "d", "y": "c"}, "no column 'd'; there are a, c, n"),
        ({"x": ["a", "c"], "y": "c"}, "column 'c' must contain numbers"),
        ({"x": [], "y": "c"}, "at least one column"),
        ({"x": "n", "y": "c"}, r"all cells of 'n' must have the same shape, got \(1,\) and \(2,\)"),
        (
            {"x": "a", "y": "c", "classes": ["x"]},
            r"column 'c' contains 'y', which is not one of \['x'\]",
        ),
    ],
)
def test_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_columns(Dataset(a=[1, 2], c=["x", "y"], n=[[1], [1, 2]]), **asked)


def test_partitions_are_clients() -> None:
    """As `[fds.load_partition(i) for i in range(3)]` of flwr-datasets; one has one class only."""
    parts = [Dataset(image=[picture(i)] * 10, label=["a" if i else "b", "b"] * 5) for i in range(3)]
    data = from_partitions(parts, x="image", y="label", test=0.3)
    assert [len(c.train) + len(c.holdout) for c in data.clients] == [7, 7, 7]
    assert data.num_outputs == 2
    for i, client in enumerate(data.clients):
        assert set(data.train.x[client.train].ravel()) == {i}
        assert set(data.test.x[client.test].ravel()) == {i}
    assert set(data.train.y[data.clients[0].train]) == {1}
    with pytest.raises(DataError, match="at least one partition"):
        from_partitions([], x="image", y="label")
    odd = Dataset(image=[Image.new("L", (4, 4))], label=["a"])
    with pytest.raises(DataError, match="inputs of the same shape"):
        from_partitions([*parts, odd], x="image", y="label")
