from __future__ import annotations

from pathlib import Path
from typing import Any

from sofa_fl.engine.config import FaultsConfig
from sofa_fl.engine.faulty import draw_bad
from sofa_fl.topology.tree import NodeId
from study.design import drift_plan
from study.design.run_plan import Entry, Scope
from study.rows.drift_rows import changes_of, drift_row, faults_row, honest_ari
from tests.study.drift_cases import event, write_run
from tests.topology.strategies import tree_of

SUMMARY: dict[str, Any] = {"samples_trained": 100, "seconds": 2.5, "engine": "stacked"}
GROUPS = [list(range(first, first + 6)) for first in (0, 6, 12, 18)]


def entry_of(setting: str, **extra: Any) -> Entry:
    scope = Scope(seeds=(0,), settings=(setting,), methods=("sofa",), extra=extra)
    return drift_plan.drift(scope, {})[0]


def test_a_row_has_what_happened_in_every_round(tmp_path: Path) -> None:
    entry = entry_of("swap", warmup=7)
    one, other = [[0, 1, 2], [3, 4, 5]], [[3, 4, 5], [0, 1, 2]]
    events = [
        event(one, groups={"ari": [1.0, 0.123456789]}),
        event(other, groups={"ari": [1.0, 0.5]}, edits=[{"edit": "graft"}, {"edit": "prune"}]),
        event([[0, 1], [2, 3, 4, 5]], groups={"ari": [0.4]}, client={"mean": 0.7, "min": 0.1}),
    ]
    write_run(tmp_path / "run", entry.config, events)
    row = drift_row(entry, SUMMARY, tmp_path / "run")
    assert list(row) == [
        "setting", "method", "sharing", "seed", "samples_trained", "seconds", "engine",
        "overrides", "accuracy", "worst", "changes", "ari", "edits", "moved",
    ]  # fmt: skip
    assert (row["setting"], row["method"], row["overrides"]) == ("swap", "sofa", {"warmup": 7})
    assert (row["accuracy"], row["worst"]) == ([0.9, 0.9, 0.7], [0.8, 0.8, 0.1])
    assert row["ari"] == [0.12346, 0.5, 0.4], "the level with the least, and short"
    assert (row["edits"], row["moved"]) == ([0, 2, 0], [0, 0, 1])


def test_of_churn_newcomers_and_old_ones_apart(tmp_path: Path) -> None:
    entry = entry_of("churn")
    accuracies = [0.8, 0.6, 1.0, None]
    events = [event([[0, 1]]), event([[0, 1], [24, 25]], accuracies=accuracies)]
    write_run(tmp_path / "run", entry.config, events)
    row = drift_row(entry, SUMMARY, tmp_path / "run")
    assert (row["newcomers"], row["old"]) == ([None, 1.0], [0.9, 0.7])
    assert "ari" not in row


def test_the_rounds_in_which_something_changes() -> None:
    assert changes_of(entry_of("swap").config) == [10]
    assert changes_of(entry_of("recur").config) == [10, 15]
    assert changes_of(entry_of("recur", rounds=12).config) == [10]
    assert changes_of(entry_of("groups").config) == []


def test_honest_clients_are_the_same_in_every_variant(tmp_path: Path) -> None:
    bad = set(draw_bad(FaultsConfig(bad=0.2), 24, 0))
    accuracies = [0.0 if client in bad else 0.8 for client in range(24)]
    broken = event(GROUPS, accuracies=accuracies, path_loss={"0": {"100": float("nan")}})
    sound = event(GROUPS, accuracies=accuracies, set_aside={"1": "not finite"}, absent=[2, 3])
    methods = ("clean/mean", "nan/median")
    entries = drift_plan.faults(Scope(seeds=(0,), settings=("groups",), methods=methods))
    for entry, last in zip(entries, (sound, broken)):
        folder = tmp_path / entry.method
        write_run(folder, entry.config, [event(GROUPS), last])
        row = faults_row(entry, SUMMARY, folder)
        assert row["honest"] == [0.9, 0.8]
        assert row["honest_ari"] == [1.0, 1.0]
        assert row["finite"] == (last is sound)
        assert row["heard"] == ([24, 21] if last is sound else [24, 24])
        assert row["set_aside"] == ([0, 1] if last is sound else [0, 0])


def test_bad_clients_do_not_count_in_the_tree() -> None:
    tree = tree_of([[0, 1, 5], [2, 3, 4]])
    truth = [0, 0, 1, 1, 0, 1]
    assert honest_ari(tree, truth, set()) < 1
    assert honest_ari(tree, truth, {NodeId(4), NodeId(5)}) == 1
    assert honest_ari(tree, truth, {NodeId(4), NodeId(5), NodeId(9)}) == 1, "one not in the tree"
    alone = tree_of([[0, 1], [2, 3], [4, 5]])
    assert honest_ari(alone, [0, 0, 1, 1, 2, 2], {NodeId(4), NodeId(5)}) == 1, "an empty cluster"
