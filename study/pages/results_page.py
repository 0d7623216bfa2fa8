"""`docs/results.md` and the table in the README, made from the files in `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

from sofa_fl.experiment.storage.disk import write_text
from study.design.captions import LOSS_FIGURES
from study.design.choices import FILE, TRIED, choices_table
from study.design.contenders import AS_WRITTEN, CONTENDERS, title
from study.design.settings import SETTINGS
from study.pages.ablation_tables import ablation
from study.pages.benchmark_tables import By, benchmark_tables, by_method, standing
from study.pages.made_by import by_precision, made_by, precisions_in
from study.pages.markdown import NOTHING, between, bold, in_percent, listed, seeds_told, table
from study.pages.natural_tables import NATURAL, natural_summary
from study.pages.page_parts import (
    as_options,
    common,
    engines_of,
    has_setting,
    made_from,
    over,
    picture,
    rate_fell,
    write_page,
)
from study.pages.paper_claims import fairness_claims, loss_claims, sharing_claims
from study.pages.paper_tables import table1, table2
from study.pages.sharing_words import mean_disclosed, shared
from study.rows.figure_data import read_figures
from study.rows.row_files import Row, of_method, read_rows

LOSSES_ARE_OLDER = (
    "`figures.json` does not record what made these curves.\n"
    "They are of seed 0 alone, older than the rules of the tables, and have not been drawn again.\n"
)
NOT_OF_THE_TABLE = (
    "The figure is not of the runs in the table: it shows one run per method with seed {seed}, made "
    "on a CPU, and the rows of the table come from an H200.\n"
    "Mean client in the figure / in the row of that seed:\n{means}.\n"
)


def write_pages(out: Path, pages: Path, readme: Path | None) -> tuple[Path, ...]:
    """Write both; a README without the markers stays as it is."""
    page = pages / "results.md"
    write_page(page, results_page(out, pages))
    if readme is None or not readme.exists():
        return (page,)
    text = readme.read_text(encoding="utf-8")
    if (changed := with_results(text, out)) != text:
        write_text(readme, changed)
    return page, readme


def with_results(readme: str, out: Path) -> str:
    """A README with new tables between its markers."""
    compared, natural = (read_rows(out / name) for name in ("benchmark.json", NATURAL))
    readme = between(readme, "results", _captioned(compact_table(compared), compared))
    return between(readme, "natural", _captioned(natural_summary(natural), natural))


def _captioned(made: str, rows: Sequence[Row]) -> str:
    """A table with what made its rows below it."""
    return f"{made}\n{made_by(rows)}" if made else ""


def compact_table(rows: Sequence[Row]) -> str:
    """SOFA-FL, FedAvg and the best of the others: mean / worst client, a line per setting."""
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
            what = shared([row for of in by.values() for row in of]) or "no sharing"
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
    yield made_from(out)
    if not any(found.values()):
        yield "There are no results yet: `python -m study all` makes them.\n"
        return
    yield f"## What was run\n\n{_what_was_run(found, read_rows(out / TRIED), choices)}"
    yield f"{rate_fell('SOFA-FL (not as written) and `+`')}"
    if rows := found["benchmark"]:
        yield f"## In short\n\n{_captioned(compact_table(rows), rows)}"
        yield f"{by_precision(rows, found['ablation'])}{standing(rows)}"
        yield from picture(pages, "benchmark")
    if rows := found["table1"]:
        yield f"## The paper's first table: fairness\n\n{over(rows)}\n\n{table1(rows)}"
        yield from filter(None, [made_by(rows) + _contenders(rows), fairness_claims(rows)])
        if clients := "\n".join(picture(pages, "clients")):
            yield clients + _not_of_the_table(out, rows)
        yield from picture(pages, "tree")
    if rows := found["table2"]:
        yield f"## The paper's second table: sharing\n\n{over(rows)}\n\n{table2(rows)}"
        yield made_by(rows, lambda label: title(label.split(":")[0]) if ":" in label else label)
        yield from filter(None, [sharing_claims(rows)])
    yield from _losses(out, pages)
    if rows := found["benchmark"]:
        yield f"## All methods\n\n{READING}\n{benchmark_tables(rows)}"
    if rows := found["ablation"]:
        yield f"## SOFA-FL without each of its parts\n\n{over(rows)}\n{PARTS}"
        yield made_by(rows)
        yield ablation(rows)
    if choices:
        yield f"## Hyperparameters\n\n{_chosen(out, choices)}\n{choices_table(choices)}"
        yield made_by(read_rows(out / TRIED))


def _contenders(rows: Sequence[Row]) -> str:
    """What the columns of the first table are, where there is more than ours."""
    if not of_method(rows, AS_WRITTEN):
        return ""
    return (
        f"*{title(AS_WRITTEN)}* is the preset `paper`: every rule as the paper writes it.\n"
        f"*SOFA-FL* is our default{_but_for_sharing(rows)}.\n"
        "The learning rates of HypCluster were chosen on validation data, from 1e-3 and 2e-3.\n"
        f"*{title(AS_WRITTEN)}* trains at the 1e-3 of the authors' code, which was not chosen.\n"
    )


def _but_for_sharing(rows: Sequence[Row]) -> str:
    """How SOFA-FL's rows with sharing differ from its default."""
    told = [row for row in of_method(rows, "sofa") if row["sharing"]]
    if not told:
        return ""
    return (
        " but for `sharing.max_disclosure=1`, as in the paper: with sharing, "
        f"{mean_disclosed(told):.0%} of a client's samples have left it by the end.\n"
        "By default a tenth does, and [what that brings could be chance](disclosure.md)"
    )


def _not_of_the_table(out: Path, rows: Sequence[Row]) -> str:
    """By how much the runs of the figure of clients differ from those of the table."""
    if (data := read_figures(out).get("clients")) is None:
        return ""
    means = []
    for label, accuracies in data["accuracies"].items():
        drawn = fmean(x for x in accuracies if x is not None)
        for row in of_method(rows, label):
            if row["seed"] == data["seed"] and not isclose(drawn, row["mean"]):
                means.append(f"{title(label)} {in_percent(drawn)} / {in_percent(row['mean'])}")
    told = NOT_OF_THE_TABLE.format(seed=data["seed"], means=listed(means)) if means else ""
    return f"\n{told}" if told else ""


def _losses(out: Path, pages: Path) -> Iterator[str]:
    """The loss figures of the paper's appendix, and what they show."""
    data = read_figures(out).get("losses")
    figures = list(picture(pages, *(each.file for each in LOSS_FIGURES.values())))
    if data and figures:
        yield "## The paper's loss figures\n"
        yield LOSSES_ARE_OLDER
        yield from filter(None, [loss_claims(data["curves"], data["seed"])])
        yield from figures


READING = """\
A `+` marks a baseline with SOFA-FL's class-mix correction, but nothing else of SOFA-FL.
Differences are SOFA-FL's number minus the other method's, seed by seed, in points.
Their 95% intervals (Student's t) are after Holm's correction for all differences of a column.
Bold marks the best number of a column.
*FScore* measures how well each true group matches some cluster of the tree, at whatever depth; 1 is exact.
*MB a round* counts the models and samples sent to and from all clients together; a model kept by its client counts as if the server kept it.
"""

PARTS = """\
One part is turned off at a time, and everything else stays the same.
Without the tree, all clients remain children of the root.
Differences are seed by seed, in points, with intervals after Holm's correction for all differences of a column.
"""


def _what_was_run(found: dict[str, list[Row]], tried: Sequence[Row], choices: Sequence[Row]) -> str:
    rows = [row for rows in found.values() for row in rows]
    budgets = listed([f"{n:,}" for n in sorted({row["samples_trained"] for row in rows})])
    chosen = (
        "The hyperparameters of the baselines were chosen per setting and sharing, on validation "
        f"data of other seeds (below).\nSOFA-FL is our default{_but_for_sharing(found['benchmark'])}."
        if choices
        else "**No hyperparameters were chosen: all methods ran with their defaults.**"
    )
    lines = [f"- {s.name}: {s.title}" for s in SETTINGS.values() if has_setting(rows, s.name)]
    given = {name: common(of) for name, of in found.items() if of}
    commands = [f"{name}{as_options(overrides)}" for name, overrides in given.items()]
    if choices:
        sets = as_options(common([{"overrides": row["extra"]} for row in tried])) if tried else ""
        commands.insert(0, f"sweep --seeds {','.join(map(str, swept(choices)))}{sets}")
    return (
        "\n".join(lines)
        + f"\n\n{over(rows)}\n"
        + "A run has 20 rounds of 25 batches of 100 samples per client, with the paper's CNN.\n"
        + f"Samples trained per run: {budgets}.\n{engines_of(rows)}"
        + f"{''.join(_overridden(given))}{chosen}\n\n```\n"
        + "\n".join(f"python -m study {words} --replace" for words in commands)
        + "\npython -m study figures\npython -m study docs"
        + f"\n```\n{_mixed(found)}"
    )


def _mixed(found: Mapping[str, Sequence[Row]]) -> str:
    """What the commands do not repeat: rows whose precision others of their file do not have."""
    names = [name for name, rows in found.items() if len(precisions_in(rows)) > 1]
    if not names:
        return ""
    return (
        "\nThe rows of a table may differ in code and precision; what is below each says so.\n"
        f"The command for {listed(names)} makes all rows in float32 by the present code, so it does "
        "not repeat those that are in another precision or by older code.\n"
    )


def _overridden(given: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence per override: the targets whose runs all have it."""
    words = {name: [f"`{key}={value}`" for key, value in of.items()] for name, of in given.items()}
    for override in dict.fromkeys(each for of in words.values() for each in of):
        names = [name for name, of in words.items() if override in of]
        whose = "All runs" if len(names) == len(words) else f"The runs of {listed(names)}"
        yield f"{whose} have {override}.\n"


def _chosen(out: Path, choices: Sequence[Row]) -> str:
    return (
        f"They were chosen on validation data (a sixth of the training images) with "
        f"{seeds_told(swept(choices))}, by the mean client.\n"
        "If the choices differ, a cell shows the one without sharing / the one with sharing.\n"
        "A cell is empty if there is nothing to choose: in S4 HypCluster is given the number of "
        "groups, and the oracle needs groups.\n"
        f"`{out.name}/{TRIED}` has every run that was tried.\n"
    )


def swept(choices: Sequence[Row]) -> list[int]:
    """The seeds with which choices were made."""
    return sorted({seed for row in choices for seed in row["seeds"]})


def _best(by: By, labels: Sequence[str]) -> str:
    """The label with the highest mean client, or an empty one if there are no labels."""
    return max(labels, key=lambda label: _mean(by[label], "mean"), default="")


def _pair(rows: Sequence[Row], *, is_best: bool) -> str:
    if not rows:
        return NOTHING
    text = f"{in_percent(_mean(rows, 'mean'))} / {in_percent(_mean(rows, 'min'))}"
    return bold(text) if is_best else text


def _mean(rows: Sequence[Row], key: str) -> float:
    return fmean(row[key] for row in rows)
