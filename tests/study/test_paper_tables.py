from __future__ import annotations

import re

from study.design.contenders import FULL
from study.pages.ablation_tables import ablation
from study.pages.benchmark_tables import benchmark_tables, standing
from study.pages.paper_tables import table1, table2
from tests.study.cases import row, rows

CLEAR = [0.95, 0.951, 0.949, 0.95, 0.95]
LOWER = [0.90, 0.902, 0.899, 0.90, 0.90]


def test_table1_stands_beside_the_paper() -> None:
    chosen = {"hypcluster.num_clusters": 2}
    made = table1([*rows("sofa", CLEAR), *rows("hypcluster", LOWER, overrides=chosen)])
    assert "| HypCluster, K = 2 (chosen) |" in made
    assert "| mean accuracy | 95.00 ± 0.09 | 90.02 ± 0.14 | 98.18 | 88.73 |" in made
    assert "| Jain's index | 0.99900 | 0.99900 | 0.9999 | 0.9805 |" in made
    one = table1([row("sofa", mean=0.9818), row("hypcluster", mean=0.5)])
    assert "| mean accuracy | 98.18 | 50.00 |" in one
    assert "as written" not in one


def test_table1_has_sofa_as_written_and_the_paper_s_number_of_clusters() -> None:
    means = {"sofa": 0.99, "sofa_paper": 0.98, "hypcluster_k3": 0.8, "hypcluster": 0.9}
    made = table1([row(label, mean=mean) for label, mean in means.items()])
    assert made.startswith(
        "|  | SOFA-FL as written | SOFA-FL | HypCluster, K = 3 | HypCluster, K = 3 (chosen) |"
    )
    assert "| mean accuracy | 98.00 | 99.00 | 80.00 | 90.00 | 98.18 | 88.73 |" in made


def test_table2_has_the_rows_there_are() -> None:
    made = table2([row("no sharing", mean=0.97), row("0.1, fixed", mean=0.98)])
    assert "| no sharing | 97.00 | 97.00 | 97.94 | 94.51 |" in made
    assert "| 0.1, fixed | 98.00 | 98.00 | 98.27 | 95.78 |" in made
    assert "random" not in made
    assert "as written" not in made


def test_table2_has_both_averages_for_both() -> None:
    both = [row("0.1, fixed", mean=0.98), row("sofa_paper: 0.1, fixed", mean=0.9, full=0.8)]
    made = table2(both)
    assert made.startswith(
        "| sharing | SOFA-FL as written: client average | SOFA-FL as written: total average "
        "| SOFA-FL: client average |"
    )
    assert "| 0.1, fixed | 90.00 | 80.00 | 98.00 | 98.00 | 98.27 | 95.78 |" in made


def test_the_benchmark_marks_the_best_and_pairs_by_seed() -> None:
    made = benchmark_tables([*rows("sofa", CLEAR), *rows("fedavg", LOWER)])
    (ours,) = (line for line in made.splitlines() if line.startswith("| SOFA-FL |"))
    (theirs,) = (line for line in made.splitlines() if line.startswith("| FedAvg |"))
    assert "**95.00**" in ours
    assert "**" not in theirs.replace("**1.00**", "")
    assert "+4.98 ± 0.06" in theirs
    assert theirs.count("5 of 5") == 2


def test_it_says_where_sofa_does_not_win() -> None:
    ahead = benchmark_tables([*rows("sofa", CLEAR), *rows("fedavg", LOWER)])
    assert "not** win" not in ahead
    assert ahead.count("is ahead of all others") == 3
    behind = benchmark_tables([*rows("sofa", LOWER), *rows("fedavg", CLEAR)])
    assert behind.count("does **not** win.\n  It is behind FedAvg (−4.98 ± 0.06)") == 3
    assert "On the whole test set SOFA-FL does **not** win" in behind
    mixed = [0.94, 0.96, 0.949, 0.96, 0.95]
    unclear = benchmark_tables([*rows("sofa", CLEAR), *rows("ditto", mixed)])
    assert "not clearly ahead of Ditto" in unclear
    assert "1 of 5 seeds" in unclear
    # Ahead in four of five, but by no more than chance: that is said too.
    slight = benchmark_tables([*rows("sofa", CLEAR), *rows("ditto", [*LOWER[:4], 0.99])])
    assert "Its lead over Ditto" in slight
    # Nor is it a lead where the mean is lower, in however many seeds it is higher.
    undone = benchmark_tables([*rows("sofa", [*CLEAR[:4], 0.9]), *rows("ditto", [0.94] * 4 + [1])])
    assert "not clearly ahead of Ditto (−1.20 ± 6.11, 4 of 5 seeds)" in undone


def test_groups_are_shown_where_they_are_known() -> None:
    made = benchmark_tables([row("sofa", setting="S4", ari=0.5, purity=0.75), row("sofa")])
    assert made.count("groups: ARI") == 1
    assert "| 0.50 | 75.00 |" in made
    assert "Samples trained per run: " in made
    assert "Seeds: 1." in made
    assert "| seeds |" not in made


def test_it_is_told_who_was_not_run() -> None:
    made = benchmark_tables([*rows("sofa", CLEAR), *rows("fedavg", LOWER)[:2]])
    assert "- Not run: Local, FedAvg, tuned, " in made
    assert "Oracle" not in made  # it is for settings with groups
    assert f"- Not yet with all seeds: FedAvg (2 of {len(CLEAR)} seeds)." in made
    assert "| seeds |" in made
    assert "| samples |" not in made


def test_the_count_over_everything() -> None:
    made = standing([*rows("sofa", CLEAR), *rows("fedavg", LOWER), *rows("ditto", CLEAR)])
    assert "2 comparisons" in made
    assert "above zero in 1, below zero in 0, and contains zero in 1.\n  After Holm's" in made
    assert "On the whole test set: 2 comparisons" in made


def test_bytes_and_groups_stand_beside_accuracy_where_rows_have_them() -> None:
    with_them = row("sofa", down=12.345, up=3.0, fscore=0.5), row("fedavg", down=2.0, up=2.0)
    made = benchmark_tables(with_them)
    assert "| FScore | MB down a round | up |" in made
    assert "| 0.50 | 12.35 | 3.00 |" in made
    assert "| – | **2.00** | **2.00** |" in made
    assert "MB" not in benchmark_tables([row("sofa"), row("fedavg")])


def test_intervals_are_wider_among_many() -> None:
    two = benchmark_tables([*rows("sofa", CLEAR), *rows("fedavg", LOWER)])
    many = benchmark_tables(
        [*rows("sofa", CLEAR), *rows("fedavg", LOWER), *rows("ditto", LOWER), *rows("cfl", LOWER)]
    )
    wide = re.findall(r"\| \+4\.98 ± (\S+) \| \+4\.98 ± \S+ \|", many)
    assert "+4.98 ± 0.06" in two
    assert sorted(wide) == ["0.06", "0.07", "0.08"], "of three alike, the last is as if alone"


def test_the_ablation_is_against_the_whole() -> None:
    made = ablation([*rows(FULL, CLEAR), *rows("no tree", LOWER), *rows("no SHAPE", CLEAR)])
    # Of two differences, the clearer one has an interval of 97.5%.
    assert "| no tree | 90.02 | 80.02 | −4.98 ± 0.07 | −4.98 ± 0.07 |" in made
    assert "| no SHAPE | 95.00 | 85.00 | +0.00 ± 0.00 |" in made
    assert "On the mean client the tree itself helps: +4.98 ± 0.06 points." in made
    same = ablation([*rows(FULL, CLEAR), *rows("no tree", CLEAR)])
    assert (
        "On the worst client the tree itself makes no difference that could not be chance" in same
    )
    worse = ablation([*rows(FULL, LOWER), *rows("no tree", CLEAR)])
    assert "On the worst client the tree itself harms: −4.98" in worse
