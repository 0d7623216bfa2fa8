from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import sofa_fl
from sofa_fl.experiment.scoring.outputs import outputs_of
from sofa_fl.experiment.serving.newcomers import assign
from tests.cli.cases import Cli, assert_refused


def test_by_inputs_of_an_npz_file(cli: Cli, finished: Path, work_dir: Path) -> None:
    x = np.random.default_rng(0).integers(0, 200, (30, 1, 6, 6)).astype(np.uint8)
    np.savez(work_dir / "new.npz", x=x)
    found = assign(finished, x)
    result = cli("assign", str(finished), "new.npz", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "node": found.node, "path": list(found.path), "clients": list(found.clients), "file": None,
    }  # fmt: skip
    told = cli("assign", str(finished), "new.npz", "-o", "model.safetensors")
    path = " > ".join(map(str, found.path))
    assert told.stdout == (
        f"by its inputs the client belongs to {found.node}, path {path}\nwrote model.safetensors\n"
    )
    assert "out.weight" in load_file(work_dir / "model.safetensors")


def test_by_labels_of_a_csv_file(cli: Cli, finished: Path, work_dir: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 200, (20, 36)), rng.integers(0, 3, 20)
    lines = [",".join([*(f"p{i}" for i in range(36)), "y"])]
    lines += [",".join(map(str, [*row, label])) for row, label in zip(x.tolist(), y.tolist())]
    (work_dir / "new.csv").write_text("\n".join(lines))
    found = assign(finished, x.reshape(20, 1, 6, 6), y)
    result = cli("assign", str(finished), "new.csv")
    assert result.stdout.startswith(f"by its labels the client belongs to {found.node}, path ")


def test_refused(cli: Cli, finished: Path, work_dir: Path) -> None:
    assert_refused(cli("assign", "nowhere", "new.npz"), "nowhere is not a run folder")
    assert_refused(cli("assign", str(finished), "none.npz"), "cannot read none.npz")
    np.savez(work_dir / "odd.npz", inputs=np.zeros(3))
    assert_refused(cli("assign", str(finished), "odd.npz"), "must have an array x, got inputs")
    (work_dir / "text.csv").write_text("a,b\n1,dog\n")
    assert_refused(cli("assign", str(finished), "text.csv"), "must be numbers, but 'b' is not")
    (work_dir / "bad.npz").write_text("not an archive")
    assert_refused(cli("assign", str(finished), "bad.npz"), "cannot read bad.npz")
    np.save(work_dir / "one.npy", np.zeros((2, 5)))
    assert_refused(cli("assign", str(finished), "one.npy"), "an .npz or a .csv file, got one.npy")
    np.savez(work_dir / "small.npz", x=np.zeros((2, 5)))
    assert_refused(cli("assign", str(finished), "small.npz"), "inputs must have shape (n, 1, 6, 6)")


def write_site(file: Path, age: float, *, flip: bool, columns: Sequence[str], seed: int) -> None:
    """Patients of about an age, who are ill if their blood pressure is high, or low (`flip`)."""
    rng = np.random.default_rng(seed)
    cells = {
        "age": rng.normal(age, 5, 120).round(1),
        "bp": rng.normal(120, 15, 120).round(1),
        "smoker": rng.choice(["yes", "no", ""], 120),
    }
    cells["ill"] = np.where((cells["bp"] > 120) != flip, "sick", "well")
    cells["bmi"] = cells["id"] = np.arange(120)
    rows = zip(*(cells[name] for name in columns))
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three sites of old patients and three of young ones, whose labels contradict."""
    folder = tmp_path_factory.mktemp("clinics")
    columns = ("id", "age", "bp", "smoker", "ill")
    for site in range(3):
        write_site(folder / f"old{site}.csv", 75, flip=False, columns=columns, seed=site)
        write_site(folder / f"young{site}.csv", 30, flip=True, columns=columns, seed=9 + site)
    local = sofa_fl.LocalConfig(batches=30, batch_size=20, learning_rate=5e-3)
    config = sofa_fl.Config(rounds=3, local=local, out=str(folder / "run"), engine="sequential")
    return sofa_fl.run(config, data=sofa_fl.from_csv(folder, target="ill", drop=["id"])).run


@pytest.mark.parametrize(
    ("columns", "by"),
    [
        (("age", "bp", "smoker"), "inputs"),
        (("smoker", "id", "bp", "age"), "inputs"),
        (("ill", "bp", "age", "smoker"), "labels"),
    ],
)
def test_raw_columns_by_their_names(
    cli: Cli, clinics: Path, work_dir: Path, columns: tuple[str, ...], by: str
) -> None:
    """Categories, blanks and standardizing as in the run, whatever the order of the columns."""
    write_site(work_dir / "new.csv", 30, flip=True, columns=columns, seed=99)
    write_site(work_dir / "known.csv", 30, flip=True, columns=("bp", "ill"), seed=99)
    told = json.loads(cli("assign", str(clinics), "new.csv", "--json").stdout)
    names = json.loads((clinics / "summary.json").read_text())["client"]["names"]
    assert {names[client][:5] for client in told["clients"]} == {"young"}
    assert f"by its {by} the client" in cli("assign", str(clinics), "new.csv").stdout
    found = sofa_fl.assign(clinics, sofa_fl.read_csv("new.csv"))
    assert (found.node, found.by) == (told["node"], by)
    table = sofa_fl.read_csv("new.csv")
    raw = np.stack([table[name].astype(object) for name in ("age", "bp", "smoker")], axis=1)
    words = sofa_fl.read_csv("known.csv")["ill"]
    assert sofa_fl.assign(clinics, raw, words if by == "labels" else None).node == found.node
    numbers = raw.copy()
    position = {"no": 0.0, "yes": 1.0, "": np.nan}
    numbers[:, 2] = [position[word] for word in raw[:, 2]]
    outputs = outputs_of(found.model, numbers.astype(float))
    assert (np.array(["sick", "well"])[outputs.argmax(axis=1)] == words).mean() > 0.85


@pytest.mark.parametrize("standardize", [True, False])
def test_names_of_from_columns(
    cli: Cli, tmp_path: Path, work_dir: Path, *, standardize: bool
) -> None:
    """Sites of the old and of the young; a new one's columns and words are found by name."""
    columns, tables = ("id", "age", "bp", "ill"), []
    for site in range(4):
        file = tmp_path / f"{site}.csv"
        write_site(file, 30 if site < 2 else 75, flip=site < 2, columns=columns, seed=site)
        tables.append(sofa_fl.read_csv(file))
    table = {name: np.concatenate([each[name] for each in tables]) for name in columns}
    arrays = sofa_fl.from_columns(table, x=["age", "bp"], y="ill")
    owner = np.repeat(range(4), [len(each["id"]) for each in tables])
    data = sofa_fl.deal(arrays, by=owner, standardize=standardize)
    config = sofa_fl.Config(rounds=1, out=str(tmp_path / "run"), engine="sequential")
    run = sofa_fl.run(config, data=data, method="local").run
    for order in (("age", "bp"), ("bp", "id", "age"), ("ill", "bp", "age")):
        write_site(work_dir / "new.csv", 30, flip=True, columns=order, seed=99)
        told = json.loads(cli("assign", str(run), "new.csv", "--json").stdout)
        assert set(told["clients"]) <= {0, 1}, order
        outputs = sofa_fl.predict(run, sofa_fl.read_csv("new.csv"), node="client:0")
        raw = np.stack([sofa_fl.read_csv("new.csv")[name] for name in ("age", "bp")], axis=1)
        np.testing.assert_array_equal(outputs, sofa_fl.predict(run, raw, node="client:0"))


def test_labels_of_some_rows_alone(cli: Cli, clinics: Path, work_dir: Path) -> None:
    """Old patients with the labels of the young ones: twenty labels outweigh what inputs say."""
    columns = ("age", "bp", "smoker", "ill")
    write_site(work_dir / "new.csv", 75, flip=True, columns=columns, seed=98)
    head, *rows = (work_dir / "new.csv").read_text().splitlines()
    blank = [row.rsplit(",", 1)[0] + "," for row in rows]
    (work_dir / "some.csv").write_text("\n".join([head, *rows[:40], *blank[40:]]))
    (work_dir / "none.csv").write_text("\n".join([head, *blank]))
    assert cli("assign", str(clinics), "some.csv").stdout.startswith("by its labels")
    assert cli("assign", str(clinics), "none.csv").stdout.startswith("by its inputs")


def test_columns_that_do_not_fit(cli: Cli, clinics: Path, work_dir: Path) -> None:
    write_site(work_dir / "few.csv", 30, flip=True, columns=("bp", "age"), seed=1)
    assert_refused(cli("assign", str(clinics), "few.csv"), "few.csv has no column 'smoker'")
    write_site(work_dir / "more.csv", 30, flip=True, columns=("age", "bp", "smoker", "bmi"), seed=1)
    assert_refused(
        cli("assign", str(clinics), "more.csv"),
        "has a column 'bmi' that the run does not know; it knows age, bp, smoker and the target "
        "'ill'; rename or remove it",
    )
    np.savez(work_dir / "five.npz", x=np.zeros((2, 5)))
    assert_refused(cli("assign", str(clinics), "five.npz"), "inputs must have shape (n, 3)")
    raw = np.zeros((2, 3))
    with pytest.raises(sofa_fl.SofaError, match="'maybe' is none of the run's classes: sick, well"):
        sofa_fl.assign(clinics, raw, ["sick", "maybe"])
    with pytest.raises(sofa_fl.SofaError, match="inputs must be finite"):
        sofa_fl.assign(clinics, raw + np.inf)


def test_standardized_arrays_without_names(tmp_path: Path) -> None:
    """The nearest mean is that of the raw inputs, as `deal` standardized them."""
    rng = np.random.default_rng(0)
    far = np.repeat([0, 40], 400)
    x = rng.normal(size=(800, 2)) * [1, 1000] + far[:, None] * [1, 1000]
    y = (x[:, 0] > far) ^ (far > 0)
    data = sofa_fl.deal(sofa_fl.from_arrays(x, y), by=far + np.arange(800) % 2, standardize=True)
    config = sofa_fl.Config(rounds=1, warmup=5, out=str(tmp_path / "run"), engine="sequential")
    run = sofa_fl.run(config, data=data, method="local").run
    for center, clients in ((0, {0, 1}), (40, {2, 3})):
        new = rng.normal(size=(50, 2)) * [1, 1000] + center * np.array([1, 1000])
        assert set(sofa_fl.assign(run, new).clients) <= clients
