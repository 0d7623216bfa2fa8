"""Every wrong input: one sentence, exit code 2, and nothing on the disk has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from sofa_fl.experiment.run import loop
from tests.cli.cases import Cli, assert_refused, files_in, write_images

SETTINGS = {
    "unknown key": ("data.num_client=5", "did you mean data.num_clients?"),
    "unknown section": ("dat.alpha=1", "did you mean data?"),
    "no value": ("rounds", "key=value"),
    "wrong type": ("rounds=many", "rounds"),
    "out of range": ("sofa.eta=1.5", "sofa.eta"),
    "zero rounds": ("rounds=0", "rounds"),
    "zero clients": ("data.num_clients=0", "data.num_clients"),
    "negative clients": ("data.num_clients=-3", "data.num_clients"),
    "more clients than samples": ("data.num_clients=301", "301 clients"),
    "alpha zero": ("data.alpha=0", "data.alpha"),
    "alpha negative": ("data.alpha=-1", "data.alpha"),
    "alpha no number": ("data.alpha=.nan", "data.alpha"),
    "unknown method": ("method=fedavgg", "did you mean fedavg?"),
    "unknown dataset": ("data.name=mnits", "mnist"),
    "too many samples": ("data.num_train=301", "data.num_train"),
    "images too small": ("model.name=cnn", "8 by 8"),
    "nobody is asked": ("participation=0", "participation"),
    "more than all are asked": ("participation=1.1", "participation"),
    "unknown scenario": ("data.scenario.name=drift", "'swap'"),
    "unknown key of a scenario": ("data.scenario.nam=swap", "did you mean data.scenario.name?"),
    "a scenario is a section": ("data.scenario=swap", "data.scenario is a section"),
    "a scenario in the warm-up": ("data.scenario.at=0", "data.scenario.at"),
    "a scenario of everybody": ("data.scenario.fraction=1", "data.scenario.fraction"),
    "a scenario of groups not filled": ("data.scenario.name=swap", "multiple of the 8 groups"),
    "unknown aggregate": ("guard.aggregate=mode", "'median'"),
    "all is trimmed": ("guard.trim=0.5", "guard.trim"),
    "all is out of scale": ("guard.scale=1", "guard.scale"),
    "no patience": ("guard.patience=0", "guard.patience"),
    "no quarantine": ("guard.quarantine=0", "guard.quarantine"),
    "more than all drop out": ("faults.dropout=1.5", "faults.dropout"),
    "unknown fault": ("faults.kind=evil", "'flip'"),
    "unknown key of faults": ("faults.drop=1", "did you mean faults.dropout?"),
    "no patience of SHAPE": ("sofa.shape.patience=0", "sofa.shape.patience"),
    "removed key": ("sofa.alert=0.1", "sofa.alert is no longer a setting"),
    "markup": ("data.name=[red]x", "data.name"),
}


@pytest.mark.parametrize(("setting", "words"), SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("command", [("run",), ("compare", "sofa")], ids=["run", "compare"])
def test_settings(
    cli: Cli, tiny: list[str], work_dir: Path, command: tuple[str, ...], setting: str, words: str
) -> None:
    if setting == "method=fedavgg":
        command = ("run",)  # a comparison sets the method itself
    assert_refused(cli(*command, *tiny, "--set", setting), words)
    assert files_in(work_dir) == {}
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds: [", "not valid YAML"),
        ("- 1\n- 2\n", "keys and values"),
        ("data: 5\n", "section"),
        ("data:\n  alfa: 1\n", "data.alpha"),
        ("\x00", "YAML"),
    ],
)
def test_configuration_file(cli: Cli, work_dir: Path, text: str, words: str) -> None:
    (work_dir / "my.yaml").write_text(text)
    assert_refused(cli("run", "my.yaml"), words)
    assert [path.name for path in work_dir.iterdir()] == ["my.yaml"]


def test_missing_configuration_file(cli: Cli) -> None:
    assert_refused(cli("run", "none.yaml"), "none.yaml")


def test_missing_data_folder_and_file(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    assert_refused(cli("run", *tiny, "--data-dir", "nowhere"), "nowhere")
    write_images(work_dir / "tiny", size=6)
    (work_dir / "tiny" / "test-labels").unlink()
    assert_refused(cli("run", *tiny, "--data-dir", "."), "test-labels")
    assert not (work_dir / "runs").exists()


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bgarbage", b"plain text", None])
def test_corrupt_data_file(
    cli: Cli, tiny: list[str], work_dir: Path, content: bytes | None
) -> None:
    write_images(work_dir / "tiny", size=6)
    file = work_dir / "tiny" / "train-images"
    file.write_bytes(file.read_bytes()[:-10] if content is None else content)
    assert_refused(cli("run", *tiny, "--data-dir", "."), "train-images")
    assert not (work_dir / "runs").exists()


def test_output_folder_that_cannot_be_written(cli: Cli, tiny: list[str], work_dir: Path) -> None:
    (work_dir / "file").write_text("x")
    assert_refused(cli("run", *tiny, "--out", "file/run"), "file/run")
    assert_refused(cli("run", *tiny, "--out", "file"), "file")
    assert_refused(cli("compare", "sofa", *tiny, "--out", "file"), "file")
    assert files_in(work_dir) == {work_dir / "file": b"x"}


def test_output_folder_that_is_not_empty(
    cli: Cli, tiny: list[str], work_dir: Path, run_folder: Path
) -> None:
    before = files_in(run_folder)
    assert_refused(cli("run", *tiny, "--out", str(run_folder)), "not empty", "sofa-fl resume")
    assert files_in(run_folder) == before


def test_model_that_does_not_fit_the_labels(
    cli: Cli, tiny: list[str], work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_outputs(*_: object) -> object:
        return lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 2))

    monkeypatch.setattr(loop, "network_factory", two_outputs)
    assert_refused(cli("run", *tiny), "2 outputs", "labels go up to 2")
    assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize("command", ["resume", "tree"])
def test_folder_that_is_no_run(cli: Cli, work_dir: Path, command: str) -> None:
    assert_refused(cli(command, "nowhere"), "not a run folder")
    assert_refused(cli(command, "."), "not a run folder")
    assert_refused(cli(command, "[red]\x1b[31m"), "[red]\\x1b[31m is not a run folder")
    assert list(work_dir.iterdir()) == []


def test_resume_with_a_checkpoint_of_another_method(cli: Cli, run_folder: Path) -> None:
    config = run_folder / "config.yaml"
    config.write_text(config.read_text().replace("method: sofa", "method: hypcluster"))
    before = files_in(run_folder)
    assert_refused(cli("resume", str(run_folder)), "round-00002.safetensors")
    assert files_in(run_folder) == before


def test_resume_without_checkpoints_keeps_the_record(cli: Cli, run_folder: Path) -> None:
    for file in (run_folder / "checkpoints").iterdir():
        file.unlink()
    before = files_in(run_folder)
    assert_refused(cli("resume", str(run_folder)), "no checkpoint")
    assert files_in(run_folder) == before


@pytest.mark.parametrize("round", ["3", "-1"])
def test_round_that_is_not_on_record(cli: Cli, finished: Path, round: str) -> None:
    assert_refused(cli("tree", str(finished), "--round", round), "rounds 0 to 2", round)


@pytest.mark.parametrize("text", ["no json\n", '{"event": "round"}\n', "[]\n"])
def test_tree_of_a_damaged_record(cli: Cli, run_folder: Path, text: str) -> None:
    (run_folder / "events.jsonl").write_text(text)
    assert_refused(cli("tree", str(run_folder)), "damaged")


def test_picture_that_cannot_be_written(cli: Cli, finished: Path) -> None:
    assert_refused(cli("tree", str(finished), "--svg", "no/where.svg"), "no/where.svg")


@pytest.mark.parametrize(
    "args",
    [("run", "--sed", "1"), ("run", "--rounds", "x"), ("rum",), ("--nope",), ("tree",)],
    ids=" ".join,
)
def test_usage(cli: Cli, args: tuple[str, ...]) -> None:
    assert_refused(cli(*args))


def test_a_misspelt_command_is_told_once_what_was_meant(cli: Cli) -> None:
    result = cli("runn")
    assert_refused(result, "No such command 'runn'")
    assert result.stderr.count("Did you mean") == 1
