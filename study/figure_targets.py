"""The target `figures`: it makes the runs whose data a figure lacks, and draws."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from sofa_fl.errors import RunError
from study.design import natural_plan, run_plan
from study.design.choices import read_choices
from study.design.contenders import CONTENDERS
from study.design.settings import SETTINGS
from study.pages import drift_page
from study.rows import figure_data
from study.rows.figure_data import CLIENTS, LOSSES, Pieces
from study.rows.row_files import read_rows
from study.targets import Planned, Study, TargetResult, add_pieces


def figures(study: Study) -> TargetResult:
    """All figures; runs whose data they lack are made first, with one seed."""
    need_matplotlib()
    _complete(study, run_plan.table1, CLIENTS)
    _complete(study, run_plan.table2, LOSSES)
    if "tree" not in figure_data.read_figures(study.out):
        _keep_tree(study)
    if "languages" not in figure_data.read_figures(study.out):
        _keep_languages(study)
    from study.figures.benchmark_figure import draw_benchmark
    from study.figures.disclosure_figure import draw_disclosure
    from study.figures.drift_figure import draw_drift
    from study.figures.languages_figure import draw_languages
    from study.figures.levels_figure import draw_levels
    from study.figures.paper_figures import draw_figures
    from study.figures.privacy_figure import draw_privacy

    folder = study.pages / "images"
    data = figure_data.read_figures(study.out)
    files = [*draw_figures(data, folder), folder / "languages.svg"]
    draw_languages(data["languages"], files[-1])
    if rows := read_rows(study.out / "benchmark.json"):
        files.append(folder / "benchmark.svg")
        draw_benchmark(rows, files[-1])
    if rows := [row for row in read_rows(study.out / drift_page.DRIFT) if row["changes"]]:
        files.append(folder / "drift.svg")
        draw_drift(rows, files[-1])
    for source, name, draw in (
        ("disclosure", "disclosure", draw_disclosure),
        ("privacy", "privacy", draw_privacy),
        ("tree", "levels", draw_levels),
    ):
        if rows := read_rows(study.out / f"{source}.json"):
            files.append(folder / f"{name}.svg")
            draw(rows, files[-1])
    return TargetResult(tuple(files))


def need_matplotlib() -> None:
    """Say how to install matplotlib if it is missing."""
    if find_spec("matplotlib") is None:
        raise RunError("figures need matplotlib; install it with: pip install 'sofa-fl[figures]'")


def _complete(study: Study, planned: Planned, pieces: Pieces) -> None:
    """Make the runs whose pieces a figure lacks, with one seed; rows are left as they are."""
    seed = pieces.seed_of(figure_data.read_figures(study.out), study.scope.seeds[0])
    scope = replace(study.scope, seeds=(seed,))
    add_pieces(study, planned(scope, read_choices(study.out)), pieces)


def _keep_tree(study: Study) -> None:
    """The tree of SOFA-FL where there are groups to find, with the first seed."""
    setting = next(setting for setting in SETTINGS.values() if setting.has_groups)
    sofa, seed = CONTENDERS["sofa"], study.scope.seeds[0]
    entry = run_plan.make_entry(study.scope, setting.name, sofa, setting.sharing[0], seed, {})
    study.run_entries([entry], "the tree", lambda _rows: None)
    run = study.job(entry).folder
    tree = figure_data.tree_of(run, "sofa", entry.config.data.name, seed)
    figure_data.write_figures(study.out, tree)


def _keep_languages(study: Study) -> None:
    """The last tree of the languages, with the first seed."""
    scope = replace(
        study.scope, settings=("languages-2000",), methods=("sofa",), seeds=study.scope.seeds[:1]
    )
    (entry,) = natural_plan.natural(scope, {})
    study.run_entries([entry], "the tree of the languages", lambda _rows: None)
    figure_data.write_figures(study.out, figure_data.languages_of(study.job(entry).folder))
