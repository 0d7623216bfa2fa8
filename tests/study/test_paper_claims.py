"""A verdict on the paper's text follows the rows, whichever way they point."""

from __future__ import annotations

from math import exp

import pytest

from study.pages.paper_claims import fairness_claims, loss_claims, rise_by_round, sharing_claims
from tests.study.cases import rows

HIGH = [0.95, 0.951, 0.949, 0.95, 0.95]
LOW = [0.90, 0.902, 0.899, 0.90, 0.90]
MIXED = [0.94, 0.96, 0.949, 0.96, 0.941]


def test_sofa_against_hypcluster() -> None:
    ahead = fairness_claims([*rows("sofa_paper", HIGH), *rows("hypcluster_k3", LOW)])
    assert (
        "- SOFA-FL as written − HypCluster, K = 3 on the mean client: +4.98 ± 0.06 points "
        "(paper: +9.45), as the paper says.\n"
    ) in ahead
    assert (
        "- The worst client of HypCluster, K = 3 has 80.02% here and 54.55% in the paper." in ahead
    )
    assert "K = 2" not in ahead
    behind = fairness_claims([*rows("sofa", LOW), *rows("hypcluster_k3", HIGH)])
    assert behind.count("**the opposite of what the paper says**") == 2
    unclear = fairness_claims([*rows("sofa", MIXED), *rows("hypcluster_k3", HIGH)])
    assert unclear.count("which could be chance") == 2


def test_the_chosen_number_of_clusters_is_told() -> None:
    chosen = rows("hypcluster", LOW, overrides={"hypcluster.num_clusters": 2})
    made = fairness_claims([*rows("hypcluster_k3", LOW), *chosen])
    assert "The paper finds HypCluster best with K = 3; validation data chose K = 2 here." in made
    assert fairness_claims([*rows("sofa", HIGH), *chosen]) == "", "no row to compare with"


def test_fixed_sharing_against_none() -> None:
    made = sharing_claims(
        [
            *rows("no sharing", HIGH),
            *rows("0.1, fixed", LOW),
            *rows("0.2, fixed", LOW),
            *rows("sofa_paper: no sharing", LOW),
            *rows("sofa_paper: 0.1, fixed", HIGH, full=0.5),
            *rows("sofa_paper: 0.2, fixed", MIXED),
        ]
    )
    assert (
        "- SOFA-FL, client average: fixed sharing lowers it at a ratio of 0.1 (−4.98 ± 0.06) and "
        "0.2 (−4.98 ± 0.06), **the opposite of what the paper says**.\n"
    ) in made
    assert (
        "- SOFA-FL as written, client average: fixed sharing raises it at a ratio of 0.1 "
        "(+4.98 ± 0.06) and 0.2 (+4.98 ±"
    ) in made
    assert "total average: fixed sharing raises it at a ratio of 0.2 (+4.98" in made
    assert "and lowers it at a ratio of 0.1 (−40.02" in made
    assert "| 0.1, fixed | +4.98 ± 0.06 | −40.02 ± 0.14 | −4.98 ± 0.06 |" in made
    assert made.rstrip().endswith("| +0.52 | −0.21 |"), "the paper's own differences"


def test_fixed_sharing_that_was_not_fixed_is_told() -> None:
    """Clients that always give the same tenth have given a tenth in the end."""
    none, name = rows("sofa_paper: no sharing", LOW), "sofa_paper: 0.1, fixed"
    warning = "do not test what the paper says of fixed sharing"
    fixed = rows(name, HIGH, sharing=0.1, disclosed=0.1)
    assert warning not in sharing_claims([*none, *fixed])
    redrawn = rows(name, HIGH, sharing=0.1, disclosed=0.45)
    assert f"Their clients disclosed 45% of their samples, so they {warning}." in sharing_claims(
        [*none, *redrawn]
    )


def test_no_difference_is_said_to_be_none() -> None:
    made = sharing_claims([*rows("no sharing", HIGH), *rows("0.1, fixed", MIXED)])
    assert "SOFA-FL, client average: fixed sharing makes no difference that could not be" in made
    assert "as written" not in made
    assert sharing_claims(rows("0.1, fixed", HIGH)) == ""


def curve(*rises: float) -> list[list[float]]:
    """Rounds that end at 1 and begin with these rises; the warm-up and round 1 come before."""
    return [[9.0] * 10, [1.0] * 10, *([rise, *[1.0] * 9] for rise in rises)]


def test_the_rise_is_the_beginning_of_a_round_over_the_end_of_the_one_before() -> None:
    found = rise_by_round(curve(2.0, 1.5))
    assert {number: exp(rise) for number, rise in found.items()} == pytest.approx({2: 2.0, 3: 1.5})


def test_the_surge() -> None:
    none = curve(1.0, 1.1, 1.0, 1.1)
    higher = loss_claims({"no sharing": none, "0.1, random": curve(2.0, 2.1, 2.2, 2.3)}, 0)
    assert "Random sharing makes the loss surge, as the paper says." in higher
    assert "| no sharing | 1.05 (0.96 to 1.14) |" in higher
    lower = loss_claims({"no sharing": curve(2.0, 2.1, 2.2, 2.3), "0.1, random": none}, 0)
    assert "does not make the loss surge, **the opposite of what the paper says**." in lower
    same = loss_claims({"no sharing": none, "0.1, random": curve(1.1, 1.0, 1.1, 1.0)}, 3)
    assert "which could be chance.\n  The surge is **not** confirmed." in same
    assert "for seed 3" in same
    written = {f"sofa_paper: {name}": none for name in ("no sharing", "0.1, random", "0.2, fixed")}
    assert "| 0.2, fixed | 1.05 (0.96 to 1.14) |" in loss_claims(written, 0)
    assert loss_claims({"no sharing": none}, 0) == ""
