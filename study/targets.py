"""What can be reproduced: every target makes its runs, and puts a row of each into the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.jobs.runner import RUNS, Job, OnSummary, Summary, make_job
from study.design import run_plan as plan
from study.design.choices import Choices, read_choices
from study.design.contenders import CONTENDERS
from study.design.run_plan import Entry, Scope
from study.design.settings import SETTINGS
from study.pages import drift_page as drift_docs
from study.pages import paper_tables as tables
from study.pages.benchmark_tables import benchmark_tables
from study.pages.results_page import write_pages
from study.rows import figure_data as kept
from study.rows.row_files import Row, add_rows, make_row, read_rows, row_key

Run = Callable[[Sequence[Job], str, OnSummary], list[Summary]]  # the second: what they are for
Save = Callable[[list[Row]], object]
Planned = Callable[[Scope, Choices], list[Entry]]
RowOf = Callable[[Entry, Summary, Path], Row]  # the last: its run folder


def summary_row(entry: Entry, summary: Summary, _folder: Path) -> Row:
    """The end of a run, by its summary alone."""
    e = entry
    return make_row(e.setting, e.method, e.sharing, e.seed, e.overrides, summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is asked for, where the results go, and how jobs are run and things are said.

    With `only_missing`, rows that are in the results are taken as they are, and not made again.
    """

    scope: Scope
    out: Path
    run: Run
    say: Callable[[str], None]
    only_missing: bool = False
    runs: Path = RUNS
    pages: Path = Path("docs")  # of results.md and images/
    readme: Path | None = Path("README.md")

    def job(self, entry: Entry) -> Job:
        return make_job(entry.config, entry.title, self.runs)

    def run_missing(
        self,
        entries: Sequence[Entry],
        what: str,
        save: Save,
        there: Sequence[Row],
        row_of: RowOf = summary_row,
    ) -> list[Row]:
        """As `run_entries`; but where asked so, not for entries whose rows are `there`."""
        known = {_key(row): row for row in there} if self.only_missing else {}
        missing = [entry for entry in entries if _key(entry.keys) not in known]
        made = self.run_entries(missing, what, save, row_of) if missing else []
        known |= {_key(entry.keys): row for entry, row in zip(missing, made)}
        return [known[_key(entry.keys)] for entry in entries]

    def run_entries(
        self, entries: Sequence[Entry], what: str, save: Save, row_of: RowOf = summary_row
    ) -> list[Row]:
        """A row per entry, in their order; each is saved as soon as it is there."""
        jobs = [self.job(entry) for entry in entries]
        made: dict[int, Row] = {}

        def on_summary(job: Job, summary: Summary) -> None:
            new = {
                at: row_of(entries[at], summary, job.folder)
                for at, other in enumerate(jobs)
                if other.folder == job.folder
            }
            save(list(new.values()))
            made.update(new)

        self.run(jobs, what, on_summary)
        return [made[at] for at in range(len(entries))]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a target has made: files, the rows of this time, and Markdown of all rows there are."""

    files: tuple[Path, ...]
    rows: tuple[Row, ...] = ()
    text: str = ""


def table1(study: Study) -> Outcome:
    """The paper's fairness table; what its figure needs is kept."""
    return _reproduce(study, "table1", plan.table1, tables.table1, pieces_of_table1)


def table2(study: Study) -> Outcome:
    """The paper's table of sharing; the loss curves are kept."""
    return _reproduce(study, "table2", plan.table2, tables.table2, pieces_of_table2)


def benchmark(study: Study) -> Outcome:
    """All contenders in all settings."""
    return _reproduce(study, "benchmark", plan.benchmark, benchmark_tables)


def ablation(study: Study) -> Outcome:
    """SOFA-FL without each of its parts."""
    return _reproduce(study, "ablation", plan.ablation, tables.ablation)


def figures(study: Study) -> Outcome:
    """All pictures; what they need and is not there yet is run first, with one seed."""
    need_matplotlib()
    one = replace(study, scope=replace(study.scope, seeds=study.scope.seeds[:1]))
    there = kept.read_kept(study.out)
    if "clients" not in there:
        table1(one)
    if "losses" not in there:
        table2(one)
    if "tree" not in there:
        _keep_tree(one)

    from study.figures.benchmark_figure import draw_benchmark
    from study.figures.drift_figure import draw_drift
    from study.figures.paper_figures import draw_kept

    folder = study.pages / "images"
    files = draw_kept(kept.read_kept(study.out), folder)
    if rows := read_rows(study.out / "benchmark.json"):
        files.append(folder / "benchmark.svg")
        draw_benchmark(rows, files[-1])
    if rows := [row for row in read_rows(study.out / drift_docs.DRIFT) if row["changes"]]:
        files.append(folder / "drift.svg")
        draw_drift(rows, files[-1])
    return Outcome(tuple(files))


def docs(study: Study) -> Outcome:
    """The pages on the results."""
    written = write_pages(study.out, study.pages, study.readme)
    return Outcome((*written, drift_docs.write_page(study.out, study.pages)))


def need_matplotlib() -> None:
    """Say what to install, where it is missing."""
    if find_spec("matplotlib") is None:
        raise RunError("figures need matplotlib; install it with: pip install 'sofa-fl[figures]'")


def pieces_of_table1(study: Study, entries: Sequence[Entry]) -> kept.Kept:
    """Per-client accuracies of the first seed."""
    first = {e.method: e for e in entries if e.seed == entries[0].seed}
    runs = {label: study.job(entry).folder for label, entry in first.items()}
    return kept.client_bars(first["sofa"].seed, runs)


def pieces_of_table2(study: Study, entries: Sequence[Entry]) -> kept.Kept:
    """Loss curves of the first seed, without sharing and with a tenth."""
    first = [e for e in entries if e.seed == entries[0].seed and e.sharing <= plan.PAPER_SHARING]
    runs = {entry.method: study.job(entry).folder for entry in first}
    return kept.loss_curves(entries[0].seed, runs)


def _keep_tree(study: Study) -> None:
    """The tree of SOFA-FL where there are groups to find, by the first seed."""
    setting = next(setting for setting in SETTINGS.values() if setting.has_groups)
    sofa, seed = CONTENDERS["sofa"], study.scope.seeds[0]
    entry = plan.make_entry(study.scope, setting.name, sofa, setting.sharing[0], seed, {})
    study.run_entries([entry], "the tree", lambda _rows: None)
    run = study.job(entry).folder
    kept.keep(study.out, kept.tree_of(run, "sofa", entry.config.data.name, seed))


def _reproduce(
    study: Study,
    name: str,
    planned: Planned,
    render: Callable[[Sequence[Row]], str],
    pieces: Callable[[Study, Sequence[Entry]], kept.Kept] | None = None,
) -> Outcome:
    """Make the rows of a table, and keep the pieces of its figure where it has one."""
    entries = planned(study.scope, _choices(study, planned))
    file = study.out / f"{name}.json"
    rows = study.run_missing(entries, name, partial(add_rows, file), read_rows(file))
    first = [entry for entry in entries if entry.seed == entries[0].seed]
    # Where a run is not here, its row was there before, and so are the pieces.
    if pieces and all(study.job(entry).folder.exists() for entry in first):
        kept.keep(study.out, pieces(study, entries))
    return Outcome((file,), tuple(rows), render(read_rows(file)))


def _choices(study: Study, planned: Planned) -> Choices:
    """What was chosen; for what nobody has chosen the defaults are taken, and that is said."""
    choices = read_choices(study.out)
    needed = {
        (entry.setting, entry.method, entry.sharing)
        for entry in planned(study.scope, {})
        if entry.method in CONTENDERS and CONTENDERS[entry.method].is_swept(SETTINGS[entry.setting])
    }
    if missing := sorted(needed - choices.keys()):
        names = ", ".join(f"{m} on {s} (sharing {r:g})" for s, m, r in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        study.say(
            f"note: no hyperparameters were chosen for {names}{more}: defaults are taken; "
            "'sofa-fl reproduce sweep' chooses"
        )
    return choices


def _key(keys: Mapping[str, Any]) -> str:
    """A run and what was chosen for it: another choice is another run."""
    return json.dumps([*row_key(keys), keys["overrides"]], sort_keys=True)


def datasets(settings: Sequence[str]) -> dict[str, list[str]]:
    """The settings that need each dataset."""
    needed: dict[str, list[str]] = {}
    for name in settings:
        data = SETTINGS[name].overrides.get("data.name", "mnist")
        needed.setdefault(data, []).append(name)
    return needed
