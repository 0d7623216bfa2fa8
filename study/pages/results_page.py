"""The pages on the results, `docs/results.md` and a part of the README: out of `results/` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from study.design.choices import FILE, choices_table
from study.design.contenders import CHOSEN, CONTENDERS, title
from study.design.settings import SETTINGS
from study.pages import paper_tables as tables
from study.pages.benchmark_tables import By, benchmark_tables, by_method, standing
from study.pages.markdown import NOTHING, bold, listed, share, table
from study.rows.row_files import Row, read_rows

BEGIN, END = "<!-- results -->", "<!-- /results -->"
PICTURES = {
    "benchmark": "All methods, settings and ways of sharing",
    "clients": "Every client with SOFA-FL and with HypCluster",
    "losses": "Local loss with and without sharing",
    "tree": "The tree that SOFA-FL has made",
    "drift": "Accuracy and agreement with the truth, round by round",
}


def write_pages(out: Path, pages: Path, readme: Path | None) -> tuple[Path, ...]:
    """Write both; a README without the markers is left alone."""
    page = pages / "results.md"
    pages.mkdir(parents=True, exist_ok=True)
    write_text(page, results_page(out, pages))
    if readme is None or not readme.exists():
        return (page,)
    text = readme.read_text(encoding="utf-8")
    if (changed := with_results(text, out)) != text:
        write_text(readme, changed)
    return page, readme


def with_results(readme: str, out: Path) -> str:
    """A README with the table between its markers made anew."""
    if BEGIN not in readme:
        return readme
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise RunError(f"the README has {BEGIN} and no {END} after it; add it")
    made = compact_table(read_rows(out / "benchmark.json"))
    made = f"\n{made}\n" if made else ""
    return f"{before}{BEGIN}\n{made}{END}{after}"


def compact_table(rows: Sequence[Row]) -> str:
    """SOFA-FL, the best of the others, FedAvg; mean / worst client, a line per setting."""
    if not rows:
        return ""
    head = ["mean / worst client, in %", "SOFA-FL", "FedAvg", "best as published", "best with `+`"]
    lines = []
    for name, setting in SETTINGS.items():
        here = [row for row in rows if row["setting"] == name]
        for sharing in sorted({row["sharing"] for row in here}):
            by = by_method(here, sharing)
            rivals = [c for label, c in CONTENDERS.items() if label in by and not c.needs_groups]
            published = [c.label for c in rivals if c.label != "sofa" and not c.is_plus]
            plus = [c.label for c in rivals if c.is_plus]
            shown = ["sofa", "fedavg", *(_best(by, labels) for labels in (published, plus))]
            highest = _best(by, [label for label in shown if label in by])
            what = f"{sharing:g} shared" if sharing else "no sharing"
            cells = [_pair(by.get(label, []), is_best=label == highest) for label in shown]
            names = ["", "", *(f"{title(label)} " if label else "" for label in shown[2:])]
            lines.append(
                [f"{name}: {setting.title}, {what}", *(n + cell for n, cell in zip(names, cells))]
            )
    return table(head, lines)


def results_page(out: Path, pages: Path) -> str:
    """All of `docs/results.md`."""
    return "\n".join(_sections(out, pages))


def _sections(out: Path, pages: Path) -> Iterator[str]:
    names = ("benchmark", "table1", "table2", "ablation")
    found = {name: read_rows(out / f"{name}.json") for name in names}
    choices = read_rows(out / FILE)
    yield "# Results\n"
    yield f"Made by `sofa-fl reproduce docs` out of `{out.name}/*.json`; not edited by hand.\n"
    if not any(found.values()):
        yield "There are no results yet: `sofa-fl reproduce all` makes them.\n"
        return
    yield f"## What was run\n\n{_what_was_run(found, choices)}"
    if rows := found["benchmark"]:
        yield f"## In short\n\n{compact_table(rows)}\n{standing(rows)}"
        yield from picture(pages, "benchmark")
    if rows := found["table1"]:
        yield f"## The paper's first table: fairness\n\n{over(rows)}\n\n{tables.table1(rows)}"
        yield from picture(pages, "clients", "tree")
    if rows := found["table2"]:
        yield f"## The paper's second table: sharing\n\n{over(rows)}\n\n{tables.table2(rows)}"
        yield from picture(pages, "losses")
    if rows := found["benchmark"]:
        yield f"## All methods\n\n{READING}\n{benchmark_tables(rows)}"
    if rows := found["ablation"]:
        yield f"## SOFA-FL without each of its parts\n\n{over(rows)}\n\n{PARTS}"
        yield tables.ablation(rows)
    if choices:
        yield (
            "## What was chosen\n\nOn validation data (a sixth of the training images), "
            f"{seeds_told(swept(choices))}, by the mean client; where the choice differs, without "
            "/ with sharing. A cell is empty where there is nothing to choose: in S4 HypCluster is "
            "told how many groups there are, and the oracle needs groups. Every run that was tried "
            f"is in `{out.name}/sweep.json`.\n\n"
            f"{choices_table(choices)}"
        )


READING = """\
A `+` marks a baseline that is given SOFA-FL's falling learning rate and class-mix correction, and
nothing else of it. Differences are SOFA-FL's number minus the other's, seed by seed, in points,
with 95% intervals (Student's t); bold marks the best number of a column, no more.
"""

PARTS = """\
One part is off at a time, all else stays; without a tree all clients are the root's own children,
for good. Differences are seed by seed, in points.
"""


def _what_was_run(found: dict[str, list[Row]], choices: Sequence[Row]) -> str:
    rows = [row for rows in found.values() for row in rows]
    engines = listed(sorted({row["engine"] for row in rows}))
    budgets = listed([f"{n:,}" for n in sorted({row["samples_trained"] for row in rows})])
    chosen = (
        "Hyperparameters of the baselines were chosen per setting and sharing on validation data "
        "of other seeds (below); SOFA-FL has the same, its defaults, in all settings."
        if choices
        else "**No hyperparameters were chosen: all methods ran with their defaults.**"
    )
    given = [f"{key}={value}" for key, value in common(rows).items()]
    also = f" Everywhere {listed([f'`{each}`' for each in given])}." if given else ""
    lines = [f"- {s.name}: {s.title}" for s in SETTINGS.values() if _has(rows, s.name)]
    sets = "".join(f" --set {each}" for each in given)
    sweep = [f"sweep --seeds {','.join(map(str, swept(choices)))}"] if choices else []
    runs = [f"{name}{sets}" for name in [*sweep, *(name for name, of in found.items() if of)]]
    commands = [f"sofa-fl reproduce {words}" for words in [*runs, "figures", "docs"]]
    return (
        "\n".join(lines)
        + f"\n\n{over(rows)} 20 rounds of 25 batches of 100 per client, the paper's CNN; samples "
        f"trained per run: {budgets}. Engine: {engines}.{also} {chosen}\n\n```\n"
        + "\n".join(commands)
        + "\n```\n"
    )


def swept(choices: Sequence[Row]) -> list[int]:
    """The seeds that choices were made by."""
    return sorted({seed for row in choices for seed in row["seeds"]})


def common(rows: Sequence[Row], but: Collection[str] = CHOSEN) -> dict[str, Any]:
    """What all runs were given, but for hyperparameters."""
    first = rows[0]["overrides"]
    return {
        key: value
        for key, value in first.items()
        if key not in but and all(row["overrides"].get(key) == value for row in rows)
    }


def over(rows: Sequence[Row]) -> str:
    """Which seeds a number is a mean over, and what the ± is."""
    seeds = sorted({row["seed"] for row in rows})
    if len(seeds) == 1:
        return f"Seed {seeds[0]} alone: no intervals."
    return f"Mean over {seeds_told(seeds)}; ± is a 95% interval."


def seeds_told(seeds: Sequence[int]) -> str:
    """`seed 100`, `seeds 0 and 1`."""
    return f"seed{'s' * (len(seeds) > 1)} {listed(list(map(str, seeds)))}"


def picture(pages: Path, *names: str) -> Iterator[str]:
    """The pictures that there are."""
    for name in names:
        if (pages / "images" / f"{name}.svg").exists():
            yield f"![{PICTURES[name]}](images/{name}.svg)\n"


def _best(by: By, labels: Sequence[str]) -> str:
    """The highest mean client of these; nobody of none."""
    return max(labels, key=lambda label: _mean(by[label], "mean"), default="")


def _pair(rows: Sequence[Row], *, is_best: bool) -> str:
    if not rows:
        return NOTHING
    text = f"{share(_mean(rows, 'mean'))} / {share(_mean(rows, 'min'))}"
    return bold(text) if is_best else text


def _mean(rows: Sequence[Row], key: str) -> float:
    return fmean(row[key] for row in rows)


def _has(rows: Sequence[Row], setting: str) -> bool:
    return any(row["setting"] == setting for row in rows)
