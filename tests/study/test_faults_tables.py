from __future__ import annotations

from study.pages.faults_tables import faults_tables
from tests.study.drift_cases import faulty

ENDS = [0.9, 0.902, 0.898]


def test_bad_updates_against_the_run_without_them() -> None:
    clean = [faulty("clean/mean", seed, end) for seed, end in enumerate(ENDS)]
    bad = [
        faulty("flip/mean", seed, end - 0.004, honest_ari=[0.5]) for seed, end in enumerate(ENDS)
    ]
    made = faults_tables([*clean, *bad])
    assert (
        "| the negated update, mean | 89.60 | 0.50 | 0.0 | 3 | −0.40 ± 0.00 | −0.40 ± 0.00 |"
        in made
    )
    assert "in all 1 comparisons of this kind.\n- The largest cost is −0.40 ± 0.00" in made
    assert "is finite: in all of these runs" in made


def test_what_costs_more_or_is_not_finite_is_named() -> None:
    rows = [faulty("clean/mean"), faulty("clean/median", end=0.85)]
    rows += [faulty("nan/mean", end=0.88), faulty("nan/median", end=0.85, finite=False)]
    made = faults_tables(rows)
    assert "with the same average: **not** in groups: nan/mean." in made
    assert "is finite: **not** in groups: nan/median." in made
    assert "| NaN, median | 85.00 | 1.00 | 0.0 | 1 | +0.00 | −5.00 |" in made


def test_few_clients_for_more_rounds_and_late_ones() -> None:
    partial = faulty("partial", end=0.89, samples_trained=98, accuracy=[0.5] * 67 + [0.89])
    rows = [faulty("clean/mean"), partial, faulty("stragglers", end=0.91)]
    made = faults_tables(rows)
    assert "| groups: all, every round | 90.00 | 90.00 |  |  | 2 | 100 | 72 | 1.00 | 1 |" in made
    assert "| 67 | 98 |" in made
    assert (
        "the mean client has −1.00 points against full participation.\n  Of its samples 98% "
        in made
    )
    assert "if half are stragglers, the mean client has +1.00 points" in made
    assert "Bad" not in made


def test_groups_that_are_not_known_have_no_agreement() -> None:
    row = {**faulty("nan/mean"), "setting": "S1", "sharing": 0.1}
    del row["ari"], row["honest_ari"]
    assert "**S1, 0.1 shared every round, 89% disclosed**" in faults_tables([row])
    assert "| NaN, mean | 90.00 | – |" in faults_tables([row])
    assert faults_tables([]) == ""
