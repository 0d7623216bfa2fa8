"""`sofa-fl sweep`: every combination of some values of the configuration, in one table.

Run folders are named after their configurations, and runs that have ended are not repeated: a sweep
that was stopped, or is given more values, continues when the command is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer

from sofa_fl.cli.options import AsJson, DataDir, Preset, Quiet, Rounds, Settings, SideBySide
from sofa_fl.cli.run import run_all
from sofa_fl.cli.screen import console, put, put_plain, shell
from sofa_fl.errors import ConfigError

Row = dict[str, Any]
COLUMNS = (
    ("mean", "mean", +1),
    ("min", "worst", +1),
    ("std", "std", -1),
    ("full", "whole test", +1),
    ("seconds", "seconds", 0),
)
NO_FIGURE = "the figure needs matplotlib: pip install 'sofa-fl[figures]'"


def sweep(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG.yaml",
            help="Configuration of all runs; a section [bold]over[/] can list values by key.",
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2",
            help="Values to try, for example [bold]local.learning_rate=1e-3,1e-2[/]; may be "
            "repeated. With several seeds, the table shows means.",
        ),
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    rounds: Rounds = None,
    data_dir: DataDir = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the run folders and the figure.")
    ] = Path("runs") / "sweep",
    jobs: SideBySide = 1,
    keep_runs: Annotated[
        bool,
        typer.Option(
            "--keep-runs",
            help="Keep every run's last checkpoint and report, in a folder named after its values.",
        ),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every combination of the given values, and show a table and a figure."""
    from sofa_fl.experiment.run.values import put_value

    base, values = read_sweep(config, over or ())
    for key, value in (("preset", preset), ("data.dir", data_dir)):
        if value is not None:
            put_value(base, key, value)
    from sofa_fl.jobs.combinations import best_run, combine, result_rows

    last = [] if rounds is None else [f"rounds={rounds}"]
    points = combine(base, [*(settings or ()), *last], values)
    from sofa_fl.jobs.runner import make_job

    work = [make_job(point.config, point.title, out, is_kept=keep_runs) for point in points]
    summaries = run_all(work, "sweep", jobs, quiet=quiet)
    rows = result_rows(points, summaries)
    figure = draw_figure(rows, out / "sweep.svg")
    if put_plain(rows, out, as_json=as_json, quiet=quiet):
        return
    show_rows(rows)
    put(f"Runs {shell(out)}, {f'figure {shell(figure)}' if figure else NO_FIGURE}")
    if keep_runs:
        best = shell(best_run(rows, summaries))
        put(f"Best {best}\n     sofa-fl report {best}\n     sofa-fl export {best}")
    else:
        put("The sweep kept no models; repeat it with --keep-runs to keep them.")


def read_sweep(file: Path | None, over: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration that all runs have in common, and the values to try by key."""
    from sofa_fl.experiment.run.values import read_setting, read_values, split_setting

    base = read_values(file) if file is not None else {}
    values = base.pop("over", None) or {}
    if not isinstance(values, Mapping) or not all(isinstance(v, list) for v in values.values()):
        raise ConfigError(f"'over' in {file} must map each key to a list of values")
    tried = dict(values)
    for text in over:
        key, listed = split_setting(text, "--over", "key=v1,v2")
        tried |= [read_setting(f"{key}=[{listed}]")]
    return base, tried


def draw_figure(rows: Sequence[Row], path: Path) -> Path | None:
    """Draw the figure, if matplotlib is installed."""
    try:
        from sofa_fl.jobs.plotting import draw_grid
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return None
    draw_grid(rows, path)
    return path


def show_rows(rows: Sequence[Row]) -> None:
    """Print a row per combination; the best value of a column is bold."""
    from rich.text import Text

    from sofa_fl.cli.show_comparison import scores_table
    from sofa_fl.experiment.storage.events import metric_of
    from sofa_fl.jobs.combinations import shown_value
    from sofa_fl.report.words import plus_note

    keys, seeds = list(rows[0]["over"]), rows[0]["runs"]
    named = [([shown_value(row, key) for key in keys], row) for row in rows]
    what = f"mean of {seeds} seeds" if seeds > 1 else ""
    screen = console()
    screen.print(scores_table(what, keys, COLUMNS, named, metric_of(rows[0])))
    screen.print()
    if told := plus_note(row.get("title", "") for row in rows):
        screen.print(Text(fill(told, 80)))
