from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

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
