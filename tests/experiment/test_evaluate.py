"""Scores that are not taken in every round, or not of every client, are told as old."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from sofa_fl.api.runs import run
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.events import Event, is_evaluated
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.experiment.tracking.observers import scalars
from sofa_fl.present import EvaluateConfig
from sofa_fl.report.history import tree_in
from sofa_fl.report.page import summary_of_round
from sofa_fl.report.words import news_of
from tests.experiment.cases import own_data, tiny


def events(out: Path, **evaluate: Any) -> list[Event]:
    run(tiny(out, evaluate=evaluate), data=own_data())
    return list(RunFolder.open(out).events())


def test_a_round_without_an_evaluation_has_old_scores_and_says_so(tmp_path: Path) -> None:
    every, seldom = events(tmp_path / "every"), events(tmp_path / "seldom", every=2)
    assert [e["evaluated"] for e in seldom] == [0, 0, 2, 3], "the last round always is"
    assert [is_evaluated(e) for e in seldom] == [True, False, True, True]
    assert all("evaluated" not in e and is_evaluated(e) for e in every)
    for new, old in ((0, 0), (1, 0), (2, 2), (3, 3)):
        assert seldom[new]["client"] == every[old]["client"]
        assert seldom[new]["accuracies"] == every[old]["accuracies"]
        assert seldom[new]["tree"] == every[new]["tree"], "training goes on as it did"
    assert seldom[1]["measured"] == []


def test_what_is_old_is_not_told_as_new(tmp_path: Path) -> None:
    seldom = events(tmp_path / "seldom", every=2)
    assert not any(name.startswith("accuracy/") for name in scalars(seldom[1], seldom[0]))
    assert any(name.startswith("accuracy/") for name in scalars(seldom[2], seldom[1]))
    assert " in round 0" in news_of(seldom[1])[0]
    assert " in round" not in news_of(seldom[2])[0]
    record = summary_of_round(seldom[1], tree_in(seldom[1]), None, {})
    assert (record["round"], record["evaluated"]) == (1, 0)


def test_some_clients_are_measured_and_the_others_keep_their_last_score(tmp_path: Path) -> None:
    found = events(tmp_path / "some", clients=2)
    whole = events(tmp_path / "whole")
    known: dict[int, float] = {}
    for event, all_of_them in zip(found, whole):
        assert len(event["measured"]) == 2
        now = dict(zip(all_of_them["clients"], all_of_them["accuracies"]))
        known |= {client: now[client] for client in event["measured"]}
        assert event["accuracies"] == [known.get(client) for client in event["clients"]]
        assert event["client"]["mean"] == pytest.approx(fmean(now[c] for c in event["measured"]))
    assert len({tuple(event["measured"]) for event in found}) > 1, "others each time"


def test_the_summary_is_of_those_measured_last(tmp_path: Path) -> None:
    result = run(tiny(tmp_path / "run", evaluate={"clients": 0.4}), data=own_data())
    scores = [x for x in result.summary["client"]["accuracies"] if x is not None]
    assert len(scores) == 2
    assert result.summary["client"]["mean"] == pytest.approx(fmean(scores))


def test_a_part_of_a_client_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        EvaluateConfig(clients=2.5)
