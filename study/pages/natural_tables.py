"""Natural federations as Markdown: SOFA-FL against the best of the others, and a table each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from study.design.contenders import title
from study.design.natural_contenders import AS_PUBLISHED, NATURALS, fitting
from study.design.natural_settings import NATURAL_SETTINGS
from study.pages.benchmark_tables import By, against, count_leads, left_out, not_won, one_table
from study.pages.made_by import made_by
from study.pages.markdown import (
    NOTHING,
    bold,
    difference,
    folded,
    in_percent,
    listed,
    points,
    table,
)
from study.rows.row_files import Row, by_seed

NATURAL = "natural.json"
GOAL, GOAL_WORST = 0.1, 0.5  # how far SOFA-FL may be behind the best other, in points
TOLD = ("oracle+",)  # the groups themselves
VARIANTS = ("no tree", "regroup")  # of SOFA-FL
SINCE = (("since", "mean client"), ("since_min", "worst client"))


def by_label(rows: Sequence[Row], setting: str) -> dict[str, list[Row]]:
    """The rows of every contender in a setting, in the contenders' order."""
    here = [row for row in rows if row["setting"] == setting]
    labels = dict.fromkeys([*NATURALS, *(row["method"] for row in here)])
    found = {label: [row for row in here if row["method"] == label] for label in labels}
    return {label: of for label, of in found.items() if of}


def places(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """The rows of every contender, by setting."""
    found = {setting: by_label(rows, setting) for setting in NATURAL_SETTINGS}
    return {setting: by for setting, by in found.items() if by}


def natural_tables(rows: Sequence[Row]) -> str:
    """All settings, one under the other."""
    return "\n".join(_parts(rows))


def in_short(rows: Sequence[Row]) -> str:
    """SOFA-FL and the best of the others, mean / worst client, a line per setting."""
    head = [
        "mean / worst client, in %", "SOFA-FL", "best other", "local+", "FedAvg+",
        "SOFA-FL − best other: mean", "in its worst seed", "worst − the best worst",
    ]  # fmt: skip
    lines = []
    for setting, by in places(rows).items():
        if "sofa" not in by or len(by) < 2:
            continue
        best, fairest = strongest(by, "mean"), strongest(by, "min")
        is_ahead = lead(by, best, "mean") >= 0
        lines.append(
            [
                f"{setting}: {NATURAL_SETTINGS[setting].title}",
                bold(_pair(by, "sofa")) if is_ahead else _pair(by, "sofa"),
                f"{title(best)} " + (_pair(by, best) if is_ahead else bold(_pair(by, best))),
                _pair(by, "local+"),
                _pair(by, "fedavg+"),
                difference(against(by, best, "mean")),
                _lowest(by, best),
                f"{difference(against(by, fairest, 'min'))} ({title(fairest)})",
            ]
        )
    return table(head, lines) if lines else ""


def natural_summary(rows: Sequence[Row]) -> str:
    """For the README: the mean client, beside the best of those that are not told the groups."""
    head = [
        "mean client, in %", "SOFA-FL", "best other method", "SOFA-FL − it", "local", "FedAvg",
        "told the groups",
    ]  # fmt: skip
    lines = []
    for setting, by in places(rows).items():
        rivals = {label: of for label, of in by.items() if label not in (*TOLD, *VARIANTS)}
        if len(rivals) < 2 or "sofa" not in rivals:
            continue
        best = strongest(rivals, "mean")
        is_ahead = lead(by, best, "mean") >= 0
        ours, theirs = in_percent(_mean(by["sofa"], "mean")), in_percent(_mean(by[best], "mean"))
        lines.append(
            [
                NATURAL_SETTINGS[setting].title,
                bold(ours) if is_ahead else ours,
                f"{title(best)} {theirs if is_ahead else bold(theirs)}",
                difference(against(by, best, "mean")),
                *(
                    in_percent(_mean(by[label], "mean")) if label in by else NOTHING
                    for label in ("local+", "fedavg+", "oracle+")
                ),
            ]
        )
    return table(head, lines) if lines else ""


def lead(by: By, label: str, key: str) -> float:
    """SOFA-FL's number minus a contender's, over the seeds of both."""
    ours, theirs = by_seed(by["sofa"], key), by_seed(by[label], key)
    seeds = ours.keys() & theirs.keys()
    return fmean(ours[seed] - theirs[seed] for seed in seeds) if seeds else float("inf")


def strongest(by: By, key: str) -> str:
    """The contender that SOFA-FL leads least."""
    return min((label for label in by if label != "sofa"), key=lambda label: lead(by, label, key))


def behind(rows: Sequence[Row]) -> str:
    """Where SOFA-FL misses the goals: by how much, and behind whom."""
    missed = []
    for setting, by in places(rows).items():
        for key, room, name in (("mean", GOAL, "mean"), ("min", GOAL_WORST, "worst")):
            if "sofa" not in by or len(by) < 2:
                continue
            best = strongest(by, key)
            gap = -100 * lead(by, best, key)
            if gap > room:
                missed.append(f"{setting} ({name} client, {gap:.2f} behind {title(best)})")
    goal = (
        f"The goal is a mean client at most {GOAL} points, and a worst client at most {GOAL_WORST} "
        "points, below the best of all others, those included that are told the groups.\n"
    )
    told = f"SOFA-FL misses it in {listed(missed)}." if missed else "SOFA-FL reaches it everywhere."
    return goal + "\n".join(folded(told)) + "\n"


def standing(rows: Sequence[Row]) -> str:
    """In how many of all comparisons SOFA-FL is ahead and behind."""
    return count_leads(list(places(rows).values()), "a method, a federation")


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for setting, by in places(rows).items():
        yield f"### {setting}: {NATURAL_SETTINGS[setting].title}\n"
        yield f"{one_table(by)}\n{not_won(by)}{_not_run(setting, by)}"
        if any("since" in row for of in by.values() for row in of):
            yield (
                "Over all rounds since the first change, instead of at the end, with plain 95% "
                f"intervals:\n\n{_since(by)}\n{made_by(row for of in by.values() for row in of)}"
            )


def _since(by: By) -> str:
    """The same clients over all rounds since data first changed."""
    lines = [
        [
            title(label),
            *(in_percent(_mean(of, key)) for key, _ in SINCE),
            *("" if label == "sofa" else difference(against(by, label, key)) for key, _ in SINCE),
        ]
        for label, of in by.items()
    ]
    head = ["", *(name for _, name in SINCE), *(f"SOFA-FL − it: {name}" for _, name in SINCE)]
    return table(head, lines)


def _not_run(setting: str, by: By) -> str:
    """Contenders without rows, or with fewer seeds than others."""
    most = max(map(len, by.values()))
    none = [title(c.label) for c in fitting(setting) if c.label not in by]
    fewer = [f"{title(label)} ({len(of)} of {most})" for label, of in by.items() if len(of) < most]
    return left_out(none, fewer)


def published(rows: Sequence[Row]) -> str:
    """What training alone and FedAvg reach as published, to be read beside FLamby's numbers."""
    by = by_label(rows, "heart")
    found = [
        f"{title(label)} {in_percent(_mean(by[label], 'mean'))}"
        for label in AS_PUBLISHED
        if label in by
    ]
    return f"Without class-mix correction, at a constant rate: {listed(found)}.\n" if found else ""


def _lowest(by: By, label: str) -> str:
    """SOFA-FL's mean client minus a contender's in the seed where that is lowest."""
    ours, theirs = (by_seed(by[name], "mean") for name in ("sofa", label))
    seeds = ours.keys() & theirs.keys()
    return points(min(ours[seed] - theirs[seed] for seed in seeds)) if seeds else NOTHING


def _pair(by: By, label: str) -> str:
    if label not in by:
        return NOTHING
    return f"{in_percent(_mean(by[label], 'mean'))} / {in_percent(_mean(by[label], 'min'))}"


def _mean(rows: Sequence[Row], key: str) -> float:
    return fmean(row[key] for row in rows)
