"""The deciding experiment: the given trees, who runs where, and the registered test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import LocalConfig
from sofa_fl.engine.sequential import SequentialEngine
from sofa_fl.errors import DataError
from sofa_fl.experiment.scoring.agreement import ari
from sofa_fl.federation import Federation
from sofa_fl.models.config import ModelConfig
from sofa_fl.models.networks import network_factory
from study.design.run_plan import Scope
from study.design.tree_settings import CELLS, PRIMARY, TREE_SEEDS, TREE_SETTINGS, TREES
from study.figures.levels_figure import draw_levels
from study.fixed_tree import FixedTree, Kind, TreeConfig, given_tree
from study.pages.tree_page import tree_page
from study.pages.tree_tables import TREE, against_others, besides, verdict
from study.rows.row_files import Row, add_rows
from study.tree_targets import planned
from tests.study.cases import row

LOCAL = LocalConfig(batches=1, batch_size=4)


def federation(seed: int = 0, **more: object) -> Federation:
    given = {"num_clients": 16, "partition": "groups", "samples": 5, "num_test": 160, **more}
    data = federate(DataConfig(**given), seed)  # type: ignore[arg-type]
    network = network_factory(ModelConfig(name="mlp", hidden=4), data.train.x.shape[1:], 10)
    return Federation(data, SequentialEngine(network, data, LOCAL), LOCAL, seed, 1)


def test_trees_are_the_true_groups_or_are_not() -> None:
    fed = federation()
    lower, upper = fed.data.truth
    trees = {kind: given_tree(kind, fed) for kind in ("two", "one", "upper", "flat", "random")}
    assert {kind: tree.depth for kind, tree in trees.items()} == {
        "two": 3, "one": 2, "upper": 2, "flat": 1, "random": 3
    }  # fmt: skip
    assert {kind: len(tree.clusters) for kind, tree in trees.items()} == {
        "two": 1 + 4 + 8, "one": 1 + 8, "upper": 1 + 4, "flat": 1, "random": 1 + 4 + 8
    }  # fmt: skip
    assert ari(trees["two"], lower) == ari(trees["two"], upper) == 1
    assert ari(trees["one"], lower) == ari(trees["upper"], upper) == 1
    assert ari(trees["random"], lower) < 0.5
    assert given_tree("random", federation(1)).parent != trees["random"].parent
    assert min(trees["two"].clusters) >= fed.first_id


@pytest.mark.parametrize("kind", ["two", "dmac"])
def test_a_given_tree_stays(kind: Kind) -> None:
    options = TREES["DMAC"].overrides
    config = planned(Scope(settings=("S4-25-mlp",), methods=("two levels",), seeds=(0,)))[0].config
    assert options["options.sofa.shape.operations"] == []
    method = FixedTree(TreeConfig(kind=kind, sofa=config.options.sofa), config.sharing)
    fed = federation()
    state, _ = method.init(fed)
    first = state.tree
    if kind == "two":
        assert first == given_tree("two", fed)
    for number in (1, 2):
        state, notes = method.round(state, fed.at(number))
        assert not notes.edits
    assert state.tree == first


def test_without_nested_groups_there_is_no_such_tree() -> None:
    with pytest.raises(DataError, match="true groups on two levels, got 0"):
        given_tree("two", federation(partition="iid"))


def test_only_the_tree_varies() -> None:
    scope = Scope(settings=tuple(TREE_SETTINGS), methods=tuple(TREES), seeds=(300,))
    entries = planned(scope)
    assert len(entries) == 2 * 4 * 2 * 6
    for name, cell in CELLS.items():
        here = [entry.config for entry in entries if entry.setting == name]
        assert len({(c.data, c.model, c.local, c.options.sofa, c.rounds) for c in here}) == 1
        assert {c.options.kind for c in here} == {"dmac", "two", "one", "upper", "flat", "random"}
        assert (here[0].data.samples, here[0].model.name) == (cell.samples, cell.network)
        assert {c.sharing.ratio for c in here} == {0.0}
    assert TREE_SEEDS == (300, 301, 302, 303, 304, 305, 306, 307, 308, 309)
    assert len(PRIMARY) == 4


def runs(setting: str, label: str, mean: Callable[[int], float]) -> list[Row]:
    return [row(label, s, mean(s), setting=setting, sharing=0.0) for s in range(5)]


def test_the_claim_holds_only_if_all_four_do() -> None:
    rows = [r for name in PRIMARY for r in runs(name, "one level", lambda s: 0.8 + 0.01 * s)]
    better = [r for name in PRIMARY for r in runs(name, "two levels", lambda s: 0.83 + 0.0101 * s)]
    assert "**The claim holds**" in verdict(rows + better)
    worse = runs(PRIMARY[0], "two levels", lambda s: 0.7 + 0.0101 * s)
    mixed = [r for r in better if r["setting"] != PRIMARY[0]] + worse
    assert "does not hold**: two levels beat one in 3 of the four" in verdict(rows + mixed)
    assert "one level is better" in verdict(rows + mixed)
    noise = [r for n in PRIMARY for r in runs(n, "two levels", lambda s: 0.81 + 0.2 * (s % 2))]
    assert "does not hold**: two levels beat one in 0 of" in verdict(rows + noise)
    assert "nothing is decided yet" in verdict(rows + better[:5])
    assert "| <\N{NO-BREAK SPACE}0.0001 |" in verdict(rows + better)


def test_two_levels_are_compared_with_every_other_tree() -> None:
    rows = [r for n in PRIMARY for r in runs(n, "two levels", lambda s: 0.8 + 0.01 * s)]
    rows += [r for n in PRIMARY for r in runs(n, "one level", lambda s: 0.77 + 0.0101 * s)]
    rows += runs(PRIMARY[0], "flat", lambda s: 0.9 + 0.0101 * s)
    cells = {CELLS[name].samples: name for name in PRIMARY[:2]}
    assert against_others(rows, cells).splitlines()[3].startswith("| one level | +2.98 ± ")
    told = besides(rows)
    assert "- S9, against *one level*: better in 4 and worse in 0 of 4." in told
    words = "better in 0 and worse in 1 (25 samples and the CNN) of 1."
    assert f"- S9, against *flat*: {words}" in told
    assert "S4" not in told


def test_the_figure_has_a_point_for_every_comparison(tmp_path: Path) -> None:
    rows = [r for n in PRIMARY for r in runs(n, "one level", lambda s: 0.7 + s**2 / 1000)]
    rows += [r for n in PRIMARY for r in runs(n, "two levels", lambda s: 0.8)]
    draw_levels(rows, tmp_path / "levels.svg")
    text = (tmp_path / "levels.svg").read_text(encoding="utf-8")
    for words in ("S9: levels are compatible", "samples of a client", "CNN", "MLP"):
        assert words in text


def test_the_page_registers_before_there_are_results(tmp_path: Path) -> None:
    text = tree_page(tmp_path, tmp_path)
    assert "**Claim.** Two levels beat one" in text
    assert "no results yet: `python -m study tree`" in text
    add_rows(tmp_path / TREE, runs("S9-25-mlp", "two levels", lambda s: 0.8))
    text = tree_page(tmp_path, tmp_path)
    assert "### S9, MLP" in text
    assert "### S4" not in text
    assert "\n\n\n" not in text
