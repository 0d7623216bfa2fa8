"""Methods by name: ours, those of users by import path and entry point, and what is none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from sofa_fl.cli.options import METHODS_HELP
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, parse_config
from sofa_fl.methods import registry
from sofa_fl.methods.baselines.fedavg import FedAvg
from sofa_fl.methods.registry import (
    built_in_methods,
    find_method,
    info_of,
    make_method,
    method_names,
    register,
    title_of,
)
from tests.methods import own

TITLES = {
    "sofa": "SOFA-FL",
    "local": "Local",
    "fedavg": "FedAvg",
    "fedavg_ft": "FedAvg, tuned",
    "fedprox": "FedProx",
    "ditto": "Ditto",
    "hypcluster": "HypCluster",
    "cfl": "CFL",
    "fl_hc": "FL+HC",
    "hierfavg": "HierFAVG",
    "oracle": "Oracle",
    "feddrift": "FedDrift",
    "regroup": "DMAC every round",
    "apfl": "APFL",
    "fedrep": "FedRep",
    "fedala": "FedALA",
    "fedrod": "FedRoD",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "scaffold": "SCAFFOLD",
    "hypcluster_restarts": "HypCluster with restarts",
}


@pytest.fixture
def restored() -> Iterator[None]:
    """What a test registers is forgotten."""
    names, classes = dict(registry._BY_NAME), dict(registry._BY_CLASS)
    yield
    for kept, before in ((registry._BY_NAME, names), (registry._BY_CLASS, classes)):
        kept.clear()
        kept.update(before)  # type: ignore[arg-type]


def test_ours_are_the_files_and_the_help_names_them() -> None:
    assert {name: title_of(name) for name in built_in_methods()} == TITLES
    assert built_in_methods()[0] == "sofa"
    assert set(METHODS_HELP.partition(";")[0].split(", ")) == set(TITLES)


def test_names_are_listed_without_torch() -> None:
    code = "import sys; from sofa_fl.methods.registry import *; print(method_names()); "
    code += "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_class_by_its_import_path_is_set_by_options() -> None:
    path = "tests.methods.own:SetMomentum"
    info = find_method(path)
    assert (info.name, info.title, info.section) == ("setmomentum", "SetMomentum", "options")
    assert info.config is own.MomentumConfig
    config = parse_config({"method": path, "options": {"keep": 0.25}, "sharing": {"ratio": 0.5}})
    made = make_method(config)
    assert isinstance(made, own.SetMomentum)
    assert made.config == own.MomentumConfig(keep=0.25)
    assert made.sharing.ratio == 0.5
    assert isinstance(
        make_method(parse_config({"method": "tests.methods.own:Momentum"})), own.Momentum
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kept": 0.5}, "unknown key options.kept; did you mean options.keep?"),
        ({"keep": 1}, "options.keep: input should be less than 1, got 1"),
        ({"nesterov": "perhaps"}, "options.nesterov: input should be a valid boolean"),
        (3, "options is a section with its own keys, got 3"),
    ],
)
def test_options_are_checked_like_our_sections(options: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"method": "tests.methods.own:SetMomentum", "options": options})
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fedavgg", "unknown method fedavgg; did you mean fedavg?"),
        ("tests.methods.own:Momentun", "has no class 'Momentun'; did you mean Momentum?"),
        ("tests.methods.own:not_a_class", "has no class 'not_a_class'"),
        ("tests.methods.own:Unfinished", "but Unfinished has no round and no view"),
        ("tests.methods.own:Demanding", "needs 'friend'"),
        ("tests.methods.no:Momentum", "cannot import the method tests.methods.no:Momentum: Mod"),
    ],
)
def test_what_is_no_method_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_method(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_in_the_current_folder_is_found_and_its_errors_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    text = "from tests.methods.own import Momentum\nclass Swift(Momentum): ...\n"
    (tmp_path / "my_method_file.py").write_text(text)
    (tmp_path / "my_broken_file.py").write_text("1 / 0\n")
    assert find_method("my_method_file:Swift").title == "Swift"
    with pytest.raises(ConfigError, match="my_broken_file:X: ZeroDivisionError: division by zero"):
        find_method("my_broken_file:X")


def test_entry_points_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("heavy_ball", "tests.methods.own:Momentum", registry.GROUP)

    def installed(**wanted: Any) -> EntryPoints:
        return EntryPoints([point]).select(**wanted)

    monkeypatch.setattr(registry, "entry_points", installed)
    assert "heavy_ball" in method_names()
    info = find_method("heavy_ball")
    assert (info.name, info.title, info.factory) == ("heavy_ball", "Momentum", own.Momentum)
    with pytest.raises(ConfigError, match="did you mean heavy_ball"):
        find_method("heavy_bal")


@pytest.mark.usefixtures("restored")
def test_a_registered_class_has_its_own_name_and_title() -> None:
    register("ball", "Heavy ball", own.MomentumConfig)(own.SetMomentum)
    assert info_of(own.SetMomentum) == find_method("ball")
    assert title_of("ball") == "Heavy ball"
    assert "ball" in method_names()
    assert isinstance(make_method(parse_config({"method": "ball"})), own.SetMomentum)


@pytest.mark.usefixtures("restored")
def test_our_names_are_not_taken() -> None:
    with pytest.raises(ConfigError, match="fedavg is a built-in method"):
        register("fedavg", "Mine")(own.FedAvg)
    assert info_of(own.FedAvg).name == "own_fedavg"
    assert isinstance(make_method(Config(method="fedavg")), FedAvg)
