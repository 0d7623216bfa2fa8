from __future__ import annotations

from statistics import fmean
from typing import Any

from sofa_fl.engine.base import LocalConfig
from sofa_fl.methods.registry import built_in_methods
from study.design.contenders import (
    ABLATION,
    CONTENDERS,
    FULL,
    PAPER_CONTENDERS,
    PAPER_HYPCLUSTER,
    PAPER_K,
    RATE,
    RATES,
    SGD_RATES,
    TABLE2,
    crossed,
    title,
)
from study.design.settings import PAPER, PAPER_SHARING, SETTINGS
from study.rows.row_files import read_rows
from tests.study.test_results_page import ROOT


def test_baselines_run_as_published_and_with_the_parts_that_are_no_tree() -> None:
    for label, contender in CONTENDERS.items():
        values = dict(contender.overrides)
        if contender.is_plus or label == "sofa":
            # What SOFA-FL does is the default, in all settings the same.
            local = LocalConfig()
            expected: dict[str, Any] = {
                "local.learning_rate": local.learning_rate,
                "local.prior": local.prior,
            }
            if label == "scaffold+":  # it takes no other optimizer, and that has other rates
                expected["local.optimizer"] = "sgd"
            assert values == expected
            assert contender.rates == (SGD_RATES if label == "scaffold+" else ())
        else:
            expected = {"local.prior": False}
            if label == "scaffold":
                expected["local.optimizer"] = "sgd"
            assert values == expected
            assert len(contender.rates) > 1
    assert LocalConfig().prior
    assert not any(CONTENDERS["sofa"].is_swept(setting) for setting in SETTINGS.values())


def test_what_a_setting_gives_is_not_tried() -> None:
    contender = CONTENDERS["hypcluster"]
    assert contender.start_in(SETTINGS["S1"]) in contender.grid_in(SETTINGS["S1"])
    assert contender.grid_in(SETTINGS["S4"]) == ()  # it is told the true number of groups
    assert contender.start_in(SETTINGS["S4"]) == {}
    assert contender.is_swept(SETTINGS["S4"])  # its learning rate is
    assert not CONTENDERS["hypcluster+"].is_swept(SETTINGS["S4"])


def test_who_must_be_told_the_groups_runs_only_where_they_are_known() -> None:
    fitting = {name: CONTENDERS["oracle+"].fits(setting) for name, setting in SETTINGS.items()}
    assert fitting == {"S1": False, "S2": False, "S3": False, "S4": True, "S5": False}
    assert all(CONTENDERS["fedavg"].fits(setting) for setting in SETTINGS.values())


def test_every_part_changes_something_and_the_whole_nothing() -> None:
    assert ABLATION[FULL] == {}
    assert all(part for label, part in ABLATION.items() if label != FULL)
    assert not set(ABLATION) & set(CONTENDERS)
    assert not set(TABLE2) & set(CONTENDERS)


def test_the_rate_of_hypcluster_with_the_paper_s_k_is_the_best_on_validation_data() -> None:
    tried = [
        row
        for row in read_rows(ROOT / "results" / "sweep.json")
        if (row["setting"], row["method"], row["sharing"]) == (PAPER, "hypcluster", PAPER_SHARING)
        and row["overrides"]["hypcluster.num_clusters"] == PAPER_K
    ]
    means = {
        rate: fmean(row["mean"] for row in tried if row["overrides"][RATE] == rate)
        for rate in RATES
    }
    best = max(means, key=means.__getitem__)
    assert PAPER_CONTENDERS[PAPER_HYPCLUSTER].overrides[RATE] == best


def test_what_the_paper_fixes_is_not_chosen() -> None:
    for contender in PAPER_CONTENDERS.values():
        assert not any(contender.is_swept(setting) for setting in SETTINGS.values())
    assert not PAPER_CONTENDERS.keys() & CONTENDERS.keys()


def test_crossed() -> None:
    assert crossed(a__b=(1, 2), c=(3,)) == ({"a.b": 1, "c": 3}, {"a.b": 2, "c": 3})


def test_every_baseline_runs_with_and_without_what_is_no_tree() -> None:
    ours = {"sofa", "regroup", "feddrift"}  # the last is compared where clients change
    for method in set(built_in_methods()) - ours:
        assert {method, f"{method}+"} <= CONTENDERS.keys()
    assert "regroup+" in CONTENDERS


def test_titles() -> None:
    assert title("regroup+") == "DMAC every round+"
    assert (title("sofa"), title("fedavg+")) == ("SOFA-FL", "FedAvg+")
