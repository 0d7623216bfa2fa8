from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

from sofa_fl.api.runs import run
from tests.cli.cases import Cli, assert_refused
from tests.experiment.cases import own_data, tiny
from tests.experiment.test_model_files import own_network


def test_a_model_beside_the_run(cli: Cli, finished: Path, work_dir: Path) -> None:
    result = cli("export", str(finished))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "wrote run-root.safetensors: root after round 2, inputs (1, 6, 6)\n"
    assert "out.weight" in load_file(work_dir / "run-root.safetensors")


def test_what_a_client_uses_as_onnx(cli: Cli, finished: Path, work_dir: Path) -> None:
    options = ("--node", "client:3", "--format", "onnx", "-o", "three.bin", "--json")
    result = cli("export", str(finished), *options)
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert (told["file"], told["node"], len(told["prior"])) == ("three.bin", "client:3", 3)
    assert (work_dir / "three.bin").stat().st_size > 100


def test_refused(cli: Cli, finished: Path, work_dir: Path) -> None:
    assert_refused(cli("export", "nowhere"), "nowhere is not a run folder")
    assert_refused(cli("export", str(finished), "--node", "client:77"), "client 77 is not in")
    assert_refused(cli("export", str(finished), "--format", "pt"), "safetensors or onnx")
    folder = run(tiny(work_dir / "own", rounds=1), data=own_data(), network=own_network).run
    assert_refused(cli("export", str(folder)), "your own network", "sofa_fl.export(")
