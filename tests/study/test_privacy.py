"""Methods under differential privacy: the runs, the tables, the figure and the page."""

from __future__ import annotations

from pathlib import Path

from study.design.privacy_settings import EPSILONS, PRIVATE, PRIVATE_SETTINGS
from study.design.run_plan import Scope
from study.figures.privacy_figure import draw_privacy
from study.pages.privacy_page import privacy_page
from study.pages.privacy_tables import PRIVACY, privacy_tables, verdicts
from study.privacy_targets import planned, privacy_row
from study.rows.row_files import Row, add_rows
from tests.study.cases import row


def runs(federation: str, epsilon: int, label: str, mean: float, finest: float = 1.0) -> list[Row]:
    told = {"setting": f"{federation}-e{epsilon}", "sharing": 0.0, "finest": finest}
    return [row(label, seed, mean + 0.01 * seed, **told) for seed in range(5)]


def every(federation: str = "turned") -> list[Row]:
    means = {"sofa": 0.9, "local": 0.8, "fedavg": 0.8, "hypcluster": 0.7, "oracle": 0.95}
    return [
        r for e in EPSILONS for label, m in means.items() for r in runs(federation, e, label, m)
    ]


def test_all_methods_have_the_same_data_training_and_budget() -> None:
    scope = Scope(settings=tuple(PRIVATE_SETTINGS), methods=tuple(PRIVATE), seeds=(0, 1))
    entries = planned(scope)
    assert len(entries) == 2 * 4 * 5 * 2
    for name in PRIVATE_SETTINGS:
        here = {e.method: e.config for e in entries if e.setting == name and e.seed == 0}
        assert len({(c.data, c.model, c.local, c.rounds, c.warmup) for c in here.values()}) == 1
        assert {c.privacy.epsilon for c in here.values()} == {float(name.rpartition("-e")[2])}
        assert {c.privacy.delta for c in here.values()} == {1e-5}
        assert {c.sharing.ratio for c in here.values()} == {0.0}
        groups = 4 if name.startswith("turned") else 8
        told = here.pop("hypcluster")
        assert (told.hypcluster.num_clusters, told.privacy.scores) == (groups, groups)
        assert {c.privacy.scores for c in here.values()} == {0}


def test_rows_have_what_was_spent_and_the_finest_groups() -> None:
    (entry,) = planned(Scope(settings=("S4-e2",), methods=("sofa",), seeds=(0,)))
    client = {"mean": 0.8, "std": 0, "min": 0.4, "gap": 0, "jain": 1, "bottom10": 0.4}
    summary = {
        "client": client, "full": 0, "root": 0, "samples_trained": 1, "seconds": 1,
        "engine": "stacked", "groups": {"ari": [1.0, 0.5]},
        "privacy": {"epsilon": 2.0, "spent": 1.99, "noise": [2.0, 2.5]},
    }  # fmt: skip
    made = privacy_row(entry, summary, Path())
    assert (made["epsilon"], made["spent"], made["noise"]) == (2.0, 1.99, 2.5)
    assert (made["finest"], made["ari"]) == (1.0, 0.5)


def test_the_best_that_is_not_told_the_groups_is_marked() -> None:
    text = privacy_tables(every())
    assert "| SOFA-FL | **92.00 ± 1.96** |" in text
    assert "| Oracle | 97.00 ± 1.96 |" in text
    assert "| − Local | +10.00 ± 0.00 |" in text
    assert "| SOFA-FL | 1.00, exact in 5 of 5 |" in text
    assert "### S4" not in text


def test_goals_are_judged_as_they_were_set() -> None:
    said = verdicts(every())
    assert "+10.00 ± 0.00 points over Local at epsilon = 2; the goal of 8 is reached" in said
    assert "over FedAvg at epsilon = 2; the goal of 15 is **not reached**" in said
    assert "has the finest groups exactly with every seed down to epsilon = 1." in said
    some = [r for r in every() if r["setting"] != "turned-e1"] + runs("turned", 1, "sofa", 0.9, 0.9)
    assert "exactly with every seed down to epsilon = 2." in verdicts(some)
    none = [{**r, "finest": 0.5} for r in every()]
    assert "exactly at no epsilon." in verdicts(none)


def test_the_figure_has_a_panel_per_federation(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_privacy(every() + every("S4"), tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    for words in ("turned", "S4", "HypCluster"):
        assert f">{words}<" in text


def test_the_page_says_what_there_is(tmp_path: Path) -> None:
    text = privacy_page(tmp_path, tmp_path)
    assert "no results yet: `python -m study privacy`" in text
    add_rows(tmp_path / PRIVACY, every())
    text = privacy_page(tmp_path, tmp_path)
    assert "## Every budget" in text
    assert "\n\n\n" not in text
