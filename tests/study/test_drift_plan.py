from __future__ import annotations

from dataclasses import replace

import pytest

from sofa_fl.data.federate import federate
from study.design import drift_plan
from study.design.drift_settings import (
    AT,
    DRIFTERS,
    FAULTY,
    IN_STILL,
    SCENARIOS,
    SITUATIONS,
    STILL,
    VARIANTS,
)
from study.design.run_plan import Scope
from study.design.settings import SEEDS, SWEEP_SEEDS
from study.rows.row_files import row_key

DRIFT = Scope(seeds=(3,), settings=tuple(SITUATIONS), methods=tuple(DRIFTERS))
FAULTS = Scope(seeds=(3,), settings=tuple(FAULTY), methods=tuple(VARIANTS))


def test_all_run_in_scenarios_and_those_with_a_tree_where_nothing_changes() -> None:
    entries = drift_plan.drift(DRIFT, {})
    assert len({row_key(entry.keys) for entry in entries}) == len(entries)
    assert len(entries) == len(SCENARIOS) * len(DRIFTERS) + len(STILL) * len(IN_STILL)
    for entry in entries:
        config = entry.config
        assert (config.rounds, config.sharing.ratio, config.model.name) == (20, 0.0, "cnn")
        assert (config.local.batches, config.local.batch_size) == (25, 100)
        if entry.setting in SCENARIOS:
            assert (config.data.num_clients, config.data.scenario.at) == (24, AT)
            assert config.data.scenario.name == entry.setting


def test_all_have_the_same_local_training() -> None:
    configs = [entry.config for entry in drift_plan.drift(DRIFT, {})]
    assert len({config.local for config in configs}) == 1
    assert configs[0].local.learning_rate == 2e-3
    assert configs[0].local.prior


def test_who_is_compared_is_what_it_is_called() -> None:
    by = {entry.method: entry.config for entry in drift_plan.drift(DRIFT, {})}
    whole = by["sofa"].sofa
    frozen = replace(whole, shape=replace(whole.shape, operations=()))
    assert by["frozen tree"].sofa == frozen
    assert by["regroup"].sofa == whole


@pytest.mark.parametrize("name", SCENARIOS)
def test_hypcluster_is_told_the_most_groups_there_are_at_a_time(name: str) -> None:
    scope = replace(DRIFT, settings=(name,), methods=("hypcluster",), extra={"data.num_train": 480})
    (entry,) = drift_plan.drift(scope, {})
    stages = federate(entry.config.data, 3).stages
    most = max(len({group for group in stage.truth[0] if group >= 0}) for stage in stages)
    assert entry.config.hypcluster.num_clusters == most


def test_feddrift_is_tried_on_validation_data_of_other_seeds() -> None:
    entries = drift_plan.trials(DRIFT)
    assert len(entries) == len(SCENARIOS) * 3 * len(SWEEP_SEEDS)
    assert {entry.config.data.score_on for entry in entries} == {"validation"}
    assert not {entry.seed for entry in entries} & set(SEEDS)
    assert {entry.config.feddrift.change for entry in entries} == {0.1, 0.3, 1.0}
    chosen = {("swap", "feddrift", 0.0): {"feddrift.change": 1.0}}
    made = [e for e in drift_plan.drift(DRIFT, chosen) if e.method == "feddrift"]
    assert [e.config.feddrift.change for e in made if e.setting == "swap"] == [1.0]
    assert [e.overrides for e in made if e.setting == "swap"] == [{"feddrift.change": 1.0}]
    assert drift_plan.trials(replace(DRIFT, methods=("sofa",))) == []


def test_every_fault_is_a_configuration_and_a_quick_look_is_short() -> None:
    entries = drift_plan.faults(FAULTS)
    assert {(e.setting, e.sharing) for e in entries} == {("S1", 0.0), ("S1", 0.1), ("groups", 0.0)}
    assert {entry.config.method for entry in entries} == {"sofa"}
    by = {entry.method: entry.config for entry in entries}
    assert (by["clean/mean"].faults.are_there, by["clean/mean"].rounds) == (False, 20)
    flip = by["flip/trimmed"]
    assert (flip.faults.bad, flip.faults.kind, flip.guard.aggregate) == (0.2, "flip", "trimmed")
    partial = by["partial"]
    assert (partial.participation, partial.faults.dropout, partial.rounds) == (0.3, 0.2, 67)
    assert by["stragglers"].faults.straggle == 0.5
    quick = drift_plan.faults(replace(FAULTS, quick=True))
    assert {entry.config.rounds for entry in quick} == {2}


def test_as_many_samples_are_asked_for_by_few_as_by_all() -> None:
    by = {entry.method: entry.config for entry in drift_plan.faults(FAULTS)}
    full, partial = by["clean/mean"], by["partial"]
    assert partial.rounds * partial.participation == pytest.approx(full.rounds, rel=0.01)
