"""Natural federations: who runs where, rows where data change, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sofa_fl.methods.registry import built_in_methods
from study.design.contenders import PLUS
from study.design.natural_contenders import NATURALS, contenders, fitting
from study.design.natural_plan import natural, trials
from study.design.natural_settings import NATURAL_SETTINGS, QUICK_NATURAL
from study.design.run_plan import Scope
from study.natural_targets import natural_row
from study.pages.natural_choices import TRIED, chosen_table, read_chosen
from study.pages.natural_page import natural_page
from study.pages.natural_tables import NATURAL, behind, in_short, natural_tables
from study.rows.row_files import Row, add_rows
from tests.study.cases import row


def scope(**more: object) -> Scope:
    names = {"settings": tuple(NATURAL_SETTINGS), "methods": tuple(NATURALS), "data_dir": "data"}
    return Scope(**{**names, **more})  # type: ignore[arg-type]


def rows_of(setting: str, label: str, means: list[float], **more: object) -> list[Row]:
    return [
        row(label, seed, mean, setting=setting, sharing=0.0, **more)
        for seed, mean in enumerate(means)
    ]


def test_every_baseline_takes_part_with_the_same_local_training() -> None:
    left = {"sofa", "regroup"}
    assert {f"{name}+" for name in built_in_methods() if name not in left} <= set(NATURALS)
    scaffold = contenders((*built_in_methods(), "scaffold"))["scaffold+"]
    assert (scaffold.overrides["local.optimizer"], scaffold.needs_groups) == ("sgd", False)
    assert list(contenders((*built_in_methods(), "zebra")))[-3:] == ["zebra+", "local", "fedavg"]
    for contender in NATURALS.values():
        if contender.label not in ("local", "fedavg", "scaffold+"):
            assert contender.overrides.items() >= PLUS.items()


def test_all_of_a_setting_have_the_same_data_model_and_budget() -> None:
    entries = natural(scope(seeds=(0,)), {})
    for setting in NATURAL_SETTINGS:
        here = [entry.config for entry in entries if entry.setting == setting]
        assert len(here) == len(fitting(setting)) >= 14
        assert len({(c.data, c.model, c.rounds, c.warmup, c.local.batches) for c in here}) == 1
        assert {config.sharing.ratio for config in here} == {0.0}
        rates = {c.local.learning_rate for c in here if c.local.optimizer == "adam"}
        assert rates == {1e-3 if setting == "heart" else 2e-3}
    labels = {c.label for c in fitting("heart")}
    assert {"local", "fedavg"} <= labels
    assert not {"hypcluster+", "oracle+"} & labels  # no groups are known
    assert {"hypcluster+", "oracle+"} <= {c.label for c in fitting("weather")}


@pytest.mark.parametrize(
    ("setting", "clients", "hidden", "batches", "size"),
    [
        ("languages-2000", 33, (256, 128), 25, 50),
        ("languages-300", 33, (256, 128), 15, 20),
        ("weather", 49, (64, 32), 20, 50),
        ("heart", 4, (), 100, 4),
        ("S6", 100, 200, 10, 20),
        ("S8", 200, 200, 5, 20),
    ],
)
def test_budgets_are_as_stated(
    setting: str, clients: int, hidden: object, batches: int, size: int
) -> None:
    entry = natural(scope(settings=(setting,), methods=("sofa",), seeds=(0,)), {})[0]
    config = entry.config
    assert (config.data.num_clients, config.model.name) == (clients, "mlp")
    assert (config.model.hidden, config.local.batches, config.local.batch_size) == (
        hidden, batches, size
    )  # fmt: skip


def test_a_quick_check_is_small_everywhere() -> None:
    for entry in natural(scope(settings=QUICK_NATURAL, quick=True, methods=("sofa",)), {}):
        assert (entry.config.rounds, entry.config.local.batches) == (2, 2)
        few = entry.config.data.samples if entry.setting in ("heart", "languages-300") else 40
        assert few == 40


def test_rows_where_data_change_have_means_since_then(tmp_path: Path) -> None:
    entry = natural(scope(settings=("years",), methods=("sofa",), seeds=(0,)), {})[0]
    assert entry.config.data.scenario.at == 4
    means = [0.1, 0.1, 0.1, 0.1, 0.6, 0.8]
    events = [
        {"event": "round", "round": at, "client": {"mean": mean, "min": mean / 2}}
        for at, mean in enumerate(means)
    ]
    (tmp_path / "config.yaml").write_text("method: sofa\n")
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    client = {"mean": 0.8, "std": 0, "min": 0.4, "gap": 0, "jain": 1, "bottom10": 0.4}
    summary = {"client": client, "full": 0, "root": 0, "samples_trained": 1, "seconds": 1}
    made = natural_row(entry, {**summary, "engine": "sequential"}, tmp_path)
    assert made["since"] == pytest.approx(0.7)
    assert made["since_min"] == pytest.approx(0.35)


def test_the_best_other_and_the_goals() -> None:
    rows = rows_of("S6", "sofa", [0.9, 0.8]) + rows_of("S6", "local+", [0.82, 0.83])
    rows += rows_of("S6", "fedavg+", [0.5, 0.6])
    line = in_short(rows).splitlines()[2]
    assert "| **85.00 / 75.00** | Local+ 82.50 / 72.50 | 82.50 / 72.50 | 55.00 / 45.00 |" in line
    assert "| −3.00 |" in line
    assert "reaches it everywhere" in behind(rows)
    lost = rows_of("S6", "oracle+", [0.86, 0.86])
    assert "S6 (mean client, 1.00 behind Oracle+)" in behind(rows + lost)


def test_years_have_a_table_of_their_own() -> None:
    since = {"since": 0.7, "since_min": 0.6}
    rows = rows_of("years", "sofa", [0.8], **since) + rows_of("years", "local+", [0.8], **since)
    text = natural_tables(rows)
    assert "Over all rounds since the first change" in text
    assert "| Local+ | 70.00 | 60.00 | +0.00 | +0.00 |" in text
    assert "- Not run: no tree, " in text


def test_the_page_says_what_there_is(tmp_path: Path) -> None:
    text = natural_page(tmp_path)
    assert "no results yet: `python -m study natural`" in text
    add_rows(tmp_path / NATURAL, rows_of("heart", "sofa", [0.8]) + rows_of("heart", "local", [0.7]))
    text = natural_page(tmp_path)
    for words in (
        "FedAvg has 68.5",
        "class-mix correction, at a constant rate: Local 70.00.",
        "Not run yet: `languages-",
    ):
        assert words in text
    assert "\n\n\n" not in text


def test_what_was_chosen_is_the_best_of_all_that_were_tried(tmp_path: Path) -> None:
    asked = scope(settings=("S6",), methods=("sofa", "ditto+", "hypcluster+"), seeds=(100, 101))
    entries = trials(asked)
    assert {entry.method for entry in entries} == {"ditto+"}  # the others have nothing to choose
    assert len(entries) == 3 * 2
    assert {entry.config.data.score_on for entry in entries} == {"validation"}
    means = {1e-3: 0.5, 1e-2: 0.7, 1e-1: 0.6}
    tried = [
        {**entry.keys, "mean": means[entry.config.ditto.pull], "min": 0.1} for entry in entries
    ]

    def key(row: Row) -> object:
        return row["seed"], json.dumps(row["overrides"])

    add_rows(tmp_path / TRIED, tried[:4], key=key)
    assert read_chosen(tmp_path) == {}  # one value has not been tried yet
    add_rows(tmp_path / TRIED, tried, key=key)
    assert read_chosen(tmp_path) == {("S6", "ditto+", 0.0): {"ditto.pull": 1e-2}}
    assert "| Ditto+ | pull 0.01 | 3 |" in chosen_table(tmp_path)
    (made,) = natural(
        scope(settings=("S6",), methods=("ditto+",), seeds=(0,)), read_chosen(tmp_path)
    )
    assert (made.config.ditto.pull, made.config.data.score_on) == (1e-2, "test")
    add_rows(tmp_path / NATURAL, rows_of("S6", "sofa", [0.8]))
    assert "validation data of seeds 100 and 101" in natural_page(tmp_path)
