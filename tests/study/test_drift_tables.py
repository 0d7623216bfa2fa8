"""What is said comes out of the rows, whichever way that is."""

from __future__ import annotations

from study.pages.drift_goals import churn_words, recovery_words, regroup_words, still_words
from study.pages.drift_tables import drift_tables, standing
from study.rows.row_files import Row
from tests.study.drift_cases import drifting, still

LOST = [1.0, 1.0, 1.0, 0.3, 0.3, 0.3, 0.3]
SEEDS = range(5)


def both(**other: object) -> list[Row]:
    """SOFA-FL as it should be, and a frozen tree of five seeds."""
    after = [[0.9, 0.91, 0.92, 0.92 + seed / 1000] for seed in SEEDS]
    ours = [drifting("sofa", seed, after[seed]) for seed in SEEDS]
    return [*ours, *(drifting("frozen tree", seed, **other) for seed in SEEDS)]  # type: ignore[arg-type]


def test_who_gets_there_and_who_does_not() -> None:
    made = recovery_words(both(after=[0.6, 0.7, 0.8, 0.8], ari=LOST))
    assert "| swap: SOFA-FL | 5 of 5 | 5 of 5 | 5 of 5 | yes |" in made
    assert "| swap: frozen tree | 0 of 5 | 0 of 5 | 0 of 5 | no |" in made
    assert "SOFA-FL recovers in all seeds.\n  Not in all seeds: frozen tree.\n" in made
    by_accuracy = recovery_words(both(ari=LOST))
    assert "Of these, frozen tree is back by accuracy, but not by the tree." in by_accuracy
    level = recovery_words(both())
    assert "SOFA-FL recovers in all seeds; so does frozen tree.\n" in level


def test_it_is_said_where_sofa_does_not_get_there() -> None:
    late = [drifting("sofa", ari=[1, 1, 1, 0, 0, 0, 1]), drifting("sofa", 1)]
    made = recovery_words(late)
    assert "| swap: SOFA-FL | 1 of 2 | 2 of 2 | 2 of 2 | no |" in made
    assert "SOFA-FL does **not** recover in all seeds" in made
    assert recovery_words([]) == ""


def test_those_that_recover_where_sofa_does_not_are_said_to() -> None:
    late = drifting("sofa", ari=[1, 1, 1, 0, 0, 0, 1])
    one = recovery_words([late, drifting("feddrift")])
    assert "does **not** recover in all seeds; FedDrift recovers in all of them.\n" in one
    made = recovery_words([late, drifting("feddrift"), drifting("oracle")])
    assert "not** recover in all seeds; FedDrift and Oracle recover in all of them.\n" in made
    assert "so do" not in made


def test_against_a_new_tree_every_round() -> None:
    ours = [drifting("sofa", seed) for seed in SEEDS]
    theirs = [drifting("regroup", seed, [0.904] * 4) for seed in SEEDS]
    fine = regroup_words([*ours, *theirs])
    assert "| swap | −0.40 ± 0.00 | 0 of 5 |" in fine
    assert "| **over all of these** | −0.40 ± 0.00 | 0 of 5 |" in fine
    assert "it is not in any scenario.\nIts smallest lead is −0.40 ± 0.00 points (swap)" in fine
    far = regroup_words([*ours, *(drifting("regroup", seed, [0.906] * 4) for seed in SEEDS)])
    assert "**it is** in swap." in far
    ends = [0.90, 0.90, 0.90, 0.90, 0.92]
    unsure = [drifting("regroup", seed, [ends[seed]] * 4) for seed in SEEDS]
    assert "the interval does not exclude it in swap" in regroup_words([*ours, *unsure])
    assert regroup_words(ours) == ""


def test_newcomers() -> None:
    old = [0.8] * 7

    def row(*new: float) -> Row:
        return drifting("sofa", setting="churn", newcomers=[None] * 3 + list(new), old=old)

    fine = churn_words([row(0.4, 0.8, 0.8, 0.8)])
    assert "they do in 1 of 1 seeds.\nThe lowest share that they reach by then is 100.00 %" in fine
    assert "| SOFA-FL | 50.00 | 100.00 | 100.00 | 100.00 |" in fine
    late = churn_words([row(0.4, 0.4, 0.6, 0.8)])
    assert "they do in 0 of 1 seeds.\nThe lowest share that they reach by then is 75.00 %" in late
    assert churn_words([]) == ""


def test_where_nothing_changes_edits_should_cease_and_few_should_move() -> None:
    ours = still("sofa", edits=[0, 3, 0, 0, 0, 0, 0], moved=[0, 2, 0, 0, 0, 0, 0])
    made = still_words([ours, still("regroup", moved=[0, 3, 2, 2, 2, 2, 2])])
    assert "four rotations): SOFA-FL | 0.33 | 3.0 | 0.0 | 1 | 1 |" in made
    assert (
        "in 1 of 1 seeds SOFA-FL makes no edit in the second half.\n  2 clients change their"
        in made
    )
    assert "13 with DMAC every round: less than a fifth, which is the goal." in made
    late = still("sofa", edits=[0, 0, 0, 0, 1, 0, 0], moved=[0, 3, 0, 0, 0, 0, 0])
    worse = still_words([late, still("regroup", moved=[0, 3, 2, 2, 2, 2, 2])])
    assert "in 0 of 1 seeds SOFA-FL makes no edit" in worse
    assert "**not** less than a fifth" in worse
    assert "nothing to compare" in still_words([ours, still("regroup")])


def test_a_scenario_has_a_table_and_says_who_is_level() -> None:
    rows = both(after=[0.6, 0.7, 0.8, 0.8], ari=LOST)
    level = [{**row, "method": "feddrift"} for row in rows if row["method"] == "sofa"]
    made = drift_tables([*rows, *level])
    assert "### swap: a third of every group" in made
    (frozen,) = (line for line in made.splitlines() if line.startswith("| frozen tree |"))
    cells = [cell.strip() for cell in frozen.split("|")]
    assert cells[2:6] == ["90.00", "60.00", "72.50", "62.50"]
    assert cells[6:10] == ["0.30", "never", "never", "never"]
    assert cells[13].startswith("+18.8")
    assert "does **not** win.\n  It is not clearly ahead of FedDrift (+0.00 ± 0.00" in made
    told = standing([*rows, *level])
    assert "2 comparisons (a method, a scenario; means since the change)" in told
    assert "above zero in 1, below zero in 0, and contains zero in 1" in told
