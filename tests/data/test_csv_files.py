from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sofa_fl.data.config import DataConfig
from sofa_fl.data.csv_clients import csv_clients
from sofa_fl.data.csv_files import CsvConfig, read_csv
from sofa_fl.data.preprocess import Column
from sofa_fl.data.tables import from_csv, from_partitions
from sofa_fl.errors import DataError

HEAD = "age,kind,city,score\n"


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    north = HEAD + "".join(f"{20 + i},{i % 2},Oslo,{i % 3}\n" for i in range(12)) + "?,,,2\n"
    south = HEAD + "".join(f"{60 + i},2,Rome,{i % 3}\n" for i in range(10))
    return written(tmp_path, north=north, south=south)


def test_a_folder_is_a_federation(folder: Path) -> None:
    data = from_csv(folder, target="score > 0", categories=["kind"])
    assert data.names == ("north", "south")
    assert [len(c.train) + len(c.holdout) + len(c.test) for c in data.clients] == [13, 10]
    assert data.num_outputs == 2
    assert data.preprocessing is not None
    assert data.preprocessing.columns == (
        Column("age"),
        Column("kind", (0.0, 1.0, 2.0)),
        Column("city", (0.0, 1.0), ("Oslo", "Rome")),
    )
    assert data.train.x.shape[1] == 6
    assert data.train.x.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(data.test.x).all()


def test_nothing_of_the_test_rows_is_fitted(folder: Path) -> None:
    """Another age in a row that is only scored changes no mean."""
    data = from_csv(folder, target="score", test=0.2)
    assert data.preprocessing is not None
    south = [int(line.split(",")[0]) for line in (folder / "south.csv").read_text().split()[1:]]
    inputs = data.test.x[data.clients[1].test[0], 0]
    mean, std = data.preprocessing.mean[0], data.preprocessing.std[0]
    scored = round(inputs * std + mean)
    assert scored in south
    text = (folder / "south.csv").read_text()
    (folder / "south.csv").write_text(text.replace(f"{scored},2", "9999,2"))
    again = from_csv(folder, target="score", test=0.2)
    assert again.preprocessing == data.preprocessing
    assert again.test.x.max() > 10


def test_one_file_with_a_column_for_the_client(tmp_path: Path) -> None:
    rows = "".join(f"{i}.5;{'b' if i % 2 else 'a'};{i}\n" for i in range(20))
    file = written(tmp_path, all="size;owner;target\n" + rows) / "all.csv"
    data = from_csv(file, target="target > 9.5", client="owner", standardize=False)
    assert data.names == ("a", "b")
    assert data.preprocessing is not None
    assert [column.name for column in data.preprocessing.columns] == ["size"]
    assert set(data.train.x[data.clients[0].train, 0] % 2) == {0.5}
    named = from_partitions({"x": read_csv(file), "y": read_csv(file)}, x=["size"], y="owner")
    assert (named.names, named.num_outputs) == (("x", "y"), 2)


@pytest.mark.parametrize(
    ("text", "options"),
    [("a;b\n1,5;2\n", {"decimal": ","}), ("a\tb\n1.5\t2\n", {}), ("a|b\n1.5|2\n", {})],
)
def test_other_separators(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    table = read_csv(written(tmp_path, a=text) / "a.csv", **options)
    assert {name: cells.tolist() for name, cells in table.items()} == {"a": [1.5], "b": [2]}


@pytest.mark.parametrize(
    ("south", "options", "words"),
    [
        ("age,score\n\n60,1\n6o,0\n61,1\n", {}, r"south.csv, line 4: column 'age' .* but is '6o'"),
        ("age,score\n60,1\n61,\n", {}, r"south.csv, line 3: the target 'score' is blank"),
        ("years,score\n60,1\n", {}, r"south.csv has no column 'age'; there are years, score"),
        ("age,score\n60,1\ninf,0\n", {}, r"south.csv, line 3: column 'age' must be finite"),
        (
            "age,score\n60,yes\n",
            {},
            r"all tables, got text in south.csv, whole numbers in north.csv",
        ),
        ("age,age\n60,1\n", {}, "two columns named 'age'"),
        ("age,score\n60,1\n", {"target": "what"}, "no column 'what'; there are age, score"),
        (
            "age,score\n60,1\n",
            {"target": ""},
            "target must name the target column.* has age, score",
        ),
        ("age,score\n60,1\n", {"drop": ["aeg"]}, "no column 'aeg'"),
        ("age,score\n60,1\n", {"categories": ["sex"]}, "among the inputs age, but 'sex' is not"),
    ],
)
def test_refused(tmp_path: Path, south: str, options: dict[str, Any], words: str) -> None:
    north = "age,score\n" + "".join(f"{i},{i % 2}\n" for i in range(9))
    with pytest.raises(DataError, match=words):
        from_csv(written(tmp_path, north=north, south=south), **{"target": "score", **options})


def test_names_of_rows_are_no_category(tmp_path: Path) -> None:
    text = "who,score\n" + "".join(f"patient {i},{i % 2}\n" for i in range(150))
    with pytest.raises(DataError, match="'who' has 150 different words"):
        from_csv(written(tmp_path, a=text), target="score")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"contains no file that ends in \.csv or \.tsv"):
        from_csv(tmp_path / "empty", target="score")


def test_by_a_configuration(folder: Path) -> None:
    config = DataConfig(name="csv", dir=str(folder), csv=CsvConfig(target="score > 0"))
    assert config.label == folder.name
    tested, chosen = (
        csv_clients(DataConfig(name="csv", dir=str(folder), csv=config.csv, score_on=on), 0)
        for on in ("test", "validation")
    )
    rows = {tuple(row) for row in tested.test.x}
    assert len(chosen.test) == 2
    assert rows.isdisjoint(tuple(row) for row in chosen.test.x)
    with pytest.raises(DataError, match=r"needs data\.dir"):
        csv_clients(DataConfig(name="csv"), 0)
    with pytest.raises(
        DataError, match=r"data\.num_train applies only to data that the configuration assigns"
    ):
        csv_clients(DataConfig(name="csv", dir=str(folder), num_train=5), 0)
