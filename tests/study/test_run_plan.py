from __future__ import annotations

import pytest

from sofa_fl.errors import ConfigError
from study.design import run_plan as plan
from study.design.contenders import ABLATION, CONTENDERS
from study.design.run_plan import Scope, make_entry, read_extra
from study.design.settings import SETTINGS

ONE = Scope(seeds=(3,))


def test_the_paper_s_setting_is_the_paper_s() -> None:
    config = plan.table1(ONE, {})[0].config
    assert (config.method, config.seed, config.rounds, config.warmup) == ("sofa", 3, 20, 25)
    assert (config.data.name, config.data.num_clients, config.data.alpha) == ("mnist", 20, 1.0)
    assert (config.local.batches, config.local.batch_size) == (25, 100)
    assert (config.model.name, config.sharing.ratio, config.sharing.mode) == ("cnn", 0.1, "random")


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
    entries = plan.table2(ONE, {("S1", "sofa", 0.1): {"local.learning_rate": 2e-3}})
    shared = [(entry.config.sharing.ratio, entry.config.sharing.mode) for entry in entries]
    assert shared == [(0.0, "random"), (0.1, "random"), (0.1, "fixed"), (0.2, "fixed")]
    assert {entry.config.local.learning_rate for entry in entries} == {2e-3}
    assert [entry.sharing for entry in entries] == [0.0, 0.1, 0.1, 0.2]


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
