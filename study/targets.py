"""The targets of `python -m study`: each makes its runs, and adds a row per run to the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.jobs.runner import RUNS, Job, OnSummary, Summary, make_job
from study.design import run_plan
from study.design.choices import Choices, read_choices
from study.design.contenders import ALL_CONTENDERS
from study.design.drift_settings import EVERY
from study.design.run_plan import Entry, Scope
from study.design.settings import SETTINGS
from study.pages import (
    ablation_tables,
    disclosure_page,
    drift_page,
    natural_page,
    paper_tables,
    privacy_page,
    tree_page,
)
from study.pages.adapter_tables import with_adapters
from study.pages.benchmark_tables import benchmark_tables
from study.pages.page_parts import write_page
from study.pages.results_page import write_pages
from study.rows import figure_data
from study.rows.figure_data import CLIENTS, LOSSES, Pieces
from study.rows.row_files import Row, add_rows, as_read, make_row, read_rows, row_key

Run = Callable[[Sequence[Job], str, OnSummary], list[Summary]]  # the second says what they are for
Save = Callable[[list[Row]], object]
Planned = Callable[[Scope, Choices], list[Entry]]
RowOf = Callable[[Entry, Summary, Path], Row]  # the last is its run folder


def summary_row(entry: Entry, summary: Summary, _folder: Path) -> Row:
    """The row of a run, from its summary alone."""
    e = entry
    return make_row(e.setting, e.method, e.sharing, e.seed, e.overrides, summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is asked for, where the results go, how jobs are run and how notes are shown.

    With `only_missing`, rows that are in the results are used as they are; only with `may_replace`
    are they made again.
    """

    scope: Scope
    out: Path
    run: Run
    say: Callable[[str], None]
    only_missing: bool = False
    may_replace: bool = False
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
        key: Callable[[Mapping[str, Any]], Any] = row_key,
    ) -> list[Row]:
        """As `run_entries`, but with `only_missing` not for entries whose rows are `there`.

        A row with the same `key` is replaced, which only `may_replace` allows.
        """
        known = {whole_key(row): row for row in there} if self.only_missing else {}
        missing = [entry for entry in entries if whole_key(entry.keys) not in known]
        if not self.may_replace:
            self.check_new(missing, {key(row): row for row in there}, row_of, key)
        made = self.run_entries(missing, what, save, row_of) if missing else []
        known |= {whole_key(entry.keys): row for entry, row in zip(missing, made)}
        return [known[whole_key(entry.keys)] for entry in entries]

    def check_new(
        self,
        entries: Sequence[Entry],
        there: Mapping[Any, Row],
        row_of: RowOf,
        key: Callable[[Mapping[str, Any]], Any],
    ) -> None:
        """Raise if rows would change; those that this command made before it was stopped do not."""
        changed = 0
        for entry in entries:
            if (old := there.get(key(entry.keys))) is None:
                continue
            run = RunFolder(self.job(entry).folder)
            summary = run.summary() if is_ended(run) else None
            new = {} if summary is None else as_read(row_of(entry, summary, run.path))
            changed += not new or any(old[name] != new[name] for name in old.keys() & new.keys())
        if changed:
            raise RunError(
                f"{self.out} already has {changed} of these {len(entries)} rows; --missing leaves "
                "them as they are and makes the others, --replace makes them again, and --out DIR "
                "writes elsewhere"
            )

    def run_entries(
        self, entries: Sequence[Entry], what: str, save: Save, row_of: RowOf = summary_row
    ) -> list[Row]:
        """A row per entry, in their order; each is saved as soon as it is made."""
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
class TargetResult:
    """What a target made: files, the rows of this call, and all rows as Markdown."""

    files: tuple[Path, ...]
    rows: tuple[Row, ...] = ()
    text: str = ""


def table1(study: Study) -> TargetResult:
    """The paper's fairness table, and the data of its figure."""
    return _reproduce(study, "table1", run_plan.table1, paper_tables.table1, CLIENTS)


def table2(study: Study) -> TargetResult:
    """The paper's table of sharing, and the data of the four loss figures."""
    return _reproduce(study, "table2", run_plan.table2, paper_tables.table2, LOSSES)


def benchmark(study: Study) -> TargetResult:
    """All contenders in all settings."""
    return _reproduce(study, "benchmark", run_plan.benchmark, benchmark_tables)


def ablation(study: Study) -> TargetResult:
    """SOFA-FL without each of its parts."""
    return _reproduce(study, "ablation", run_plan.ablation, ablation_tables.ablation)


def docs(study: Study) -> TargetResult:
    """The pages with the results."""
    written = write_pages(study.out, study.pages, study.readme)
    texts = {
        "drift.md": drift_page.drift_page(study.out, study.pages),
        "disclosure.md": disclosure_page.disclosure_page(study.out, study.pages),
        "privacy.md": privacy_page.privacy_page(study.out, study.pages),
        "natural.md": natural_page.natural_page(study.out),
        "tree.md": tree_page.tree_page(study.out, study.pages),
    }
    how_to = study.pages / "adapters.md"
    if how_to.exists():
        texts[how_to.name] = with_adapters(how_to.read_text(encoding="utf-8"), study.out)
    more = [write_page(study.pages / name, text) for name, text in texts.items()]
    return TargetResult((*written, *more))


def add_pieces(study: Study, entries: Sequence[Entry], pieces: Pieces) -> None:
    """Add the pieces of runs with one seed; a run that is gone is repeated if its piece is missing.

    Its row is left as it is.
    """
    data, seed = figure_data.read_figures(study.out), entries[0].seed
    there = pieces.labels(data, seed)
    runs = {entry.method: RunFolder(study.job(entry).folder) for entry in entries}
    missing = [e for e in entries if not (e.method in there or is_ended(runs[e.method]))]
    if missing:
        study.run_entries(missing, f"figure {pieces.figure}", lambda _rows: None)
    found = {label: run.path for label, run in runs.items() if is_ended(run)}
    if found:
        figure_data.write_figures(study.out, pieces.add(data, seed, found))


def is_ended(run: RunFolder) -> bool:
    """Whether all of a run is there."""
    return run.summary_file.exists()


def _reproduce(
    study: Study,
    name: str,
    planned: Planned,
    render: Callable[[Sequence[Row]], str],
    pieces: Pieces | None = None,
) -> TargetResult:
    """Make the rows of a table, and the data of its figure where it has one."""
    entries = planned(study.scope, _choices(study, planned))
    file = study.out / f"{name}.json"
    rows = study.run_missing(entries, name, partial(add_rows, file), read_rows(file))
    if pieces:
        seed = pieces.seed_of(figure_data.read_figures(study.out), entries[0].seed)
        if with_seed := [entry for entry in entries if entry.seed == seed]:
            add_pieces(study, with_seed, pieces)
    return TargetResult((file,), tuple(rows), render(read_rows(file)))


def _choices(study: Study, planned: Planned) -> Choices:
    """What the sweep chose; without a choice the defaults are used, and a note says so."""
    choices = read_choices(study.out)
    needed = {
        entry.choice
        for entry in planned(study.scope, {})
        if ALL_CONTENDERS[entry.choice[1]].is_swept(SETTINGS[entry.setting])
    }
    if missing := sorted(needed - choices.keys()):
        names = ", ".join(f"{m} on {s} (sharing {r:g})" for s, m, r in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        study.say(
            f"note: no hyperparameters were chosen for {names}{more}: the defaults are used; "
            "choose with 'python -m study sweep'"
        )
    return choices


def whole_key(keys: Mapping[str, Any]) -> str:
    """A run and its overrides: another choice is another run."""
    return json.dumps([*row_key(keys), keys["overrides"]], sort_keys=True)


def datasets(settings: Sequence[str]) -> dict[str, list[str]]:
    """The settings that need each dataset."""
    needed: dict[str, list[str]] = {}
    for name in settings:
        data = EVERY[name].overrides.get("data.name", "mnist")
        needed.setdefault(data, []).append(name)
    return needed
