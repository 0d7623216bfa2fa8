from __future__ import annotations

from dataclasses import replace

import pytest

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.presets import PRESETS
from sofa_fl.sharing import SharingConfig
from study.design import run_plan as plan
from study.design.contenders import ABLATION, CONTENDERS, TABLE2
from study.design.run_plan import Scope, make_entry, read_extra
from study.design.settings import SETTINGS

ONE = Scope(seeds=(3,))


def test_the_paper_s_setting_is_the_paper_s() -> None:
    (config,) = (entry.config for entry in plan.table1(ONE, {}) if entry.method == "sofa")
    assert (config.method, config.seed, config.rounds, config.warmup) == ("sofa", 3, 20, 25)
    assert (config.data.name, config.data.num_clients, config.data.alpha) == ("mnist", 20, 1.0)
    assert (config.local.batches, config.local.batch_size) == (25, 100)
    assert (config.model.name, config.sharing.ratio, config.sharing.mode) == ("cnn", 0.1, "random")


def test_table1_has_the_preset_of_the_paper_and_the_paper_s_number_of_clusters() -> None:
    by_label = {entry.method: entry.config for entry in plan.table1(ONE, {})}
    assert list(by_label) == ["sofa_paper", "sofa", "hypcluster_k3", "hypcluster"]
    assert by_label["hypcluster_k3"].hypcluster.num_clusters == 3
    assert not by_label["hypcluster_k3"].local.prior
    written = by_label["sofa_paper"]
    assert written.method == "sofa"
    assert PRESETS["paper"]
    for key, value in PRESETS["paper"].items():
        found: object = written
        for part in key.split("."):
            found = getattr(found, part)
        assert (list(found) if isinstance(found, tuple) else found) == value, key


def test_every_setting_and_method_is_a_configuration() -> None:
    entries = plan.benchmark(ONE, {})
    assert {entry.setting for entry in entries} == set(SETTINGS)
    assert {entry.sharing for entry in entries} == {0.0, 0.1}
    keys = [(e.setting, e.method, e.sharing, e.seed) for e in entries]
    assert len(set(keys)) == len(keys)
    assert all(entry.config.data.num_clients in (20, 24) for entry in entries)
    parts = plan.ablation(Scope(seeds=(0,), settings=("S1",)), {})
    assert [entry.method for entry in parts] == list(ABLATION)


def test_choices_are_taken_and_told() -> None:
    chosen = {("S1", "fedprox", 0.1): {"local.learning_rate": 2e-3, "fedprox.pull": 0.1}}
    scope = Scope(
        seeds=(0,),
        settings=("S1",),
        methods=("fedprox",),
        extra={"warmup": 7, "engine": "sequential"},
    )
    without, with_sharing = plan.benchmark(scope, chosen)
    assert (with_sharing.config.local.learning_rate, with_sharing.config.fedprox.pull) == (
        2e-3,
        0.1,
    )
    assert with_sharing.overrides == {**chosen["S1", "fedprox", 0.1], "warmup": 7}
    assert without.overrides == {"warmup": 7}
    assert (without.config.warmup, without.config.engine) == (7, "sequential")


def test_one_cluster_is_fedavg() -> None:
    def entry(label: str, **chosen: int) -> plan.Entry:
        values = {key.replace("__", "."): value for key, value in chosen.items()}
        return make_entry(ONE, "S1", CONTENDERS[label], 0.1, 0, {}, chosen=values)

    one = entry("hypcluster", hypcluster__num_clusters=1)
    assert one.config == entry("fedavg").config
    assert one.method == "hypcluster"
    assert one.overrides == {"hypcluster.num_clusters": 1}


def test_table2_changes_sharing_and_nothing_else() -> None:
    rates = {"sofa": 3e-3, "sofa_paper": 4e-3}
    choices = {("S1", label, 0.1): {"local.learning_rate": rate} for label, rate in rates.items()}
    entries = plan.table2(ONE, choices)
    shared = [(entry.config.sharing.ratio, entry.config.sharing.mode) for entry in entries]
    assert shared == 2 * [(0.0, "random"), (0.1, "random"), (0.1, "fixed"), (0.2, "fixed")]
    assert [entry.sharing for entry in entries] == 2 * [0.0, 0.1, 0.1, 0.2]
    written, ours = entries[:4], entries[4:]
    assert [entry.method for entry in written] == [f"sofa_paper: {label}" for label in TABLE2]
    assert [entry.method for entry in ours] == list(TABLE2)
    assert {entry.config.local.learning_rate for entry in ours} == {3e-3}
    assert {entry.config.local.learning_rate for entry in written} == {4e-3}
    for same in (written, ours):
        plain = [replace(entry.config, sharing=SharingConfig()) for entry in same]
        assert all(config == plain[0] for config in plain)


def test_extra_settings() -> None:
    assert read_extra(["local.precision=tf32", "rounds=3"]) == {
        "local.precision": "tf32",
        "rounds": 3,
    }
    for wrong in ("rounds", "=3", "seed=4"):
        with pytest.raises(ConfigError):
            read_extra([wrong])
    with pytest.raises(ConfigError, match="roundss"):
        plan.configure({"roundss": 3})
