from __future__ import annotations

from sofa_fl.engine.base import LocalConfig
from sofa_fl.study.contenders import ABLATION, CONTENDERS, FULL, TABLE2, crossed, title
from sofa_fl.study.settings import SETTINGS


def test_baselines_run_as_published_and_with_the_parts_that_are_no_tree() -> None:
    for label, contender in CONTENDERS.items():
        as_published = {"local.final_rate": 1.0, "local.prior": False}
        expected = {} if contender.is_plus or label == "sofa" else as_published
        assert dict(contender.overrides) == expected
        assert contender.grid == () or contender.start in contender.grid
    # What SOFA-FL does is the default: that is what `+` gives to others.
    assert LocalConfig().final_rate < 1
    assert LocalConfig().prior
    # SOFA-FL's rate is chosen out of as many as that of a baseline with the same schedule.
    assert CONTENDERS["sofa"].rates == CONTENDERS["fedavg+"].rates
    assert len(CONTENDERS["sofa"].rates) == len(CONTENDERS["fedavg"].rates)


def test_who_must_be_told_the_groups_runs_only_where_they_are_known() -> None:
    fitting = {name: CONTENDERS["oracle+"].fits(setting) for name, setting in SETTINGS.items()}
    assert fitting == {"S1": False, "S2": False, "S3": False, "S4": True, "S5": False}
    assert all(CONTENDERS["fedavg"].fits(setting) for setting in SETTINGS.values())


def test_every_part_changes_something_and_the_whole_nothing() -> None:
    assert ABLATION[FULL] == {}
    assert all(part for label, part in ABLATION.items() if label != FULL)
    assert not set(ABLATION) & set(CONTENDERS)
    assert not set(TABLE2) & set(CONTENDERS)


def test_crossed() -> None:
    assert crossed(a__b=(1, 2), c=(3,)) == ({"a.b": 1, "c": 3}, {"a.b": 2, "c": 3})


def test_titles() -> None:
    assert (title("sofa"), title("fedavg+")) == ("SOFA-FL", "FedAvg+")
