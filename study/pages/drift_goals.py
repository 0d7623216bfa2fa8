"""The goals for SOFA-FL when clients change, and when they do not: whether it meets them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from study.design.contenders import title
from study.design.drift_settings import REGROUP, SCENARIOS, SOFA, STILL
from study.pages.benchmark_tables import against
from study.pages.drift_tables import By, by_label, rounds_to_ours
from study.pages.made_by import made_by
from study.pages.markdown import difference, in_percent, item, listed, table
from study.rows.estimates import Paired, paired
from study.rows.recovery import (
    LEVEL_ROUNDS,
    NEWCOMER_ROUNDS,
    NEWCOMERS,
    TREE_ROUNDS,
    is_within,
    level_before,
    newcomers_of,
    rounds_to_level,
    rounds_to_truth,
)
from study.rows.row_files import Row

ABRUPT = ("swap", "emerge", "converge")  # the tree has to change at once
MARGIN = 0.005  # how far SOFA-FL may be behind DMAC in every round
FIFTH = 0.2  # of its changed assignments, where nothing changes
QUIET = 0.5  # the last part of the rounds, in which a tree should not change any more


def recovery_words(rows: Sequence[Row]) -> str:
    """Which contenders recover in time, scenario by scenario."""
    head = ["", f"tree agrees with the truth within {TREE_ROUNDS} rounds"]
    head += [f"within 1 point of {whose} level within {LEVEL_ROUNDS}" for whose in WHOSE]
    head += ["recovers"]
    lines, said = [], []
    for name in ABRUPT:
        by = by_label(rows, name)
        if SOFA not in by:
            continue
        flags = {label: _in_time(by, label) for label in by}
        there = [label for label in by if all(flags[label][0]) and _all(flags[label][1])]
        for label, found in flags.items():
            cells = [*map(_of, found), "yes" if label in there else "no"]
            lines.append([f"{name}: {title(label)}", *cells])
        said.append(_said(name, flags, there))
    return f"{table(head, lines)}\n{_made(rows, ABRUPT)}{''.join(said)}" if lines else ""


WHOSE = ("SOFA-FL's", "its own")  # level before the change


def _in_time(by: By, label: str) -> tuple[list[bool], list[bool], list[bool]]:
    """By seed: the tree, the accuracy by SOFA-FL's level before the change, and by its own."""
    own = [rounds_to_level(row, level_before(row)) for row in by[label]]
    return (
        [is_within(rounds_to_truth(row), TREE_ROUNDS) for row in by[label]],
        [is_within(found, LEVEL_ROUNDS) for found in rounds_to_ours(by, label)],
        [is_within(found, LEVEL_ROUNDS) for found in own],
    )


def _said(name: str, flags: Mapping[str, Sequence[list[bool]]], there: Sequence[str]) -> str:
    others = [title(label) for label in there if label != SOFA]
    rest = [label for label in flags if label not in there and label != SOFA]
    by_accuracy = [title(label) for label in rest if _all(flags[label][1])]
    is_one = len(others) == 1
    if SOFA in there:
        verb, also = "recovers", f"; so {'does' if is_one else 'do'} {listed(others or [''])}"
    else:
        verb = "does **not** recover"
        also = f"; {listed(others or [''])} {'recovers' if is_one else 'recover'} in all of them"
    said = [f"**{name}**: SOFA-FL {verb} in all seeds{also if others else ''}."]
    if rest:
        said.append(f"Not in all seeds: {listed([title(label) for label in rest])}.")
    if by_accuracy:
        are = "are" if len(by_accuracy) > 1 else "is"
        said.append(f"Of these, {listed(by_accuracy)} {are} back by accuracy, but not by the tree.")
    return item(*said)


def regroup_words(rows: Sequence[Row]) -> str:
    """SOFA-FL against DMAC in every round: the mean client over the rounds after the change."""
    gaps = {name: gap for name in SCENARIOS if (gap := _ahead(by_label(rows, name)))}
    if not gaps:
        return ""
    overall = _ahead_over_all(rows, list(gaps))
    shown = {**gaps, "**over all of these**": overall} if overall else gaps
    lines = [
        [name, difference(gap), f"{gap.wins} of {gap.estimate.n}"] for name, gap in shown.items()
    ]
    least = min(gaps, key=lambda name: gaps[name].estimate.mean)
    short = [name for name, gap in gaps.items() if gap.estimate.mean < -MARGIN]
    unsure = [name for name, gap in gaps.items() if gap.estimate.low < -MARGIN]
    verdict = f"**it is** in {listed(short)}" if short else "it is not in any scenario"
    if left := [name for name in unsure if name not in short]:
        verdict += f", though the interval does not exclude it in {listed(left)}"
    return (
        table(["SOFA-FL − DMAC every round", "mean after, in points", "ahead in seeds"], lines)
        + f"\n{_made(rows, list(gaps), (SOFA, REGROUP))}"
        f"SOFA-FL should not be more than {100 * MARGIN:g} points behind: {verdict}.\n"
        f"Its smallest lead is {difference(gaps[least])} points ({least}).\n"
    )


def churn_words(rows: Sequence[Row]) -> str:
    """How soon newcomers are as accurate as the other clients."""
    by = by_label(rows, "churn")
    if SOFA not in by:
        return ""
    found = {label: [newcomers_of(row) for row in of] for label, of in by.items()}
    shown = min(5, *(len(ratios) for of in found.values() for ratios in of))
    head = ["newcomers' accuracy / the others', in %", *(f"round {k + 1}" for k in range(shown))]
    lines = [
        [title(label), *(in_percent(fmean(ratios[k] for ratios in of)) for k in range(shown))]
        for label, of in found.items()
    ]
    reached = [max(ratios[:NEWCOMER_ROUNDS]) >= NEWCOMERS for ratios in found[SOFA]]
    least = min(max(ratios[:NEWCOMER_ROUNDS]) for ratios in found[SOFA])
    return (
        table(head, lines) + f"\n{_made(rows, ('churn',))}"
        f"With SOFA-FL newcomers should reach {NEWCOMERS:.0%} of the other clients' accuracy "
        f"within {NEWCOMER_ROUNDS} rounds: they do in {_of(reached)} seeds.\n"
        f"The lowest share that they reach by then is {in_percent(least)} %.\n"
    )


def still_words(rows: Sequence[Row]) -> str:
    """If nothing changes: how many clients change their cluster, and whether edits cease."""
    head = ["", "moved per round", "edits, all rounds", "edits, last half", "last edit in round"]
    lines, said = [], []
    for name, setting in STILL.items():
        by = by_label(rows, name)
        for label, of in by.items():
            lines.append([f"{name} ({setting.title}): {title(label)}", *_still_cells(of)])
        if SOFA in by:
            said.append(_said_still(name, by))
    made = table([*head, "seeds"], lines)
    return f"{made}\n{_made(rows, list(STILL))}{''.join(said)}" if lines else ""


def _still_cells(rows: Sequence[Row]) -> list[str]:
    last = [at for row in rows for at, number in enumerate(row["edits"]) if number]
    return [
        f"{fmean(fmean(row['moved'][1:]) for row in rows):.2f}",
        f"{fmean(sum(row['edits']) for row in rows):.1f}",
        f"{fmean(sum(_last(row)) for row in rows):.1f}",
        str(max(last)) if last else "none",
        str(len(rows)),
    ]


def _said_still(name: str, by: By) -> str:
    quiet = [not any(_last(row)) for row in by[SOFA]]
    text = f"**{name}**: in {_of(quiet)} seeds SOFA-FL makes no edit in the second half."
    if REGROUP not in by:
        return item(text)
    ours, theirs = (sum(sum(row["moved"]) for row in by[label]) for label in (SOFA, REGROUP))
    moved = f"{ours} clients change their cluster over all seeds, {theirs} with DMAC every round"
    if not theirs:
        return item(text, f"{moved}, so that there is nothing to compare.")
    verdict = "less than" if ours < FIFTH * theirs else "**not** less than"
    return item(text, f"{moved}: {verdict} a fifth, which is the goal.")


def _last(row: Row) -> list[int]:
    """The edits of the last half of the rounds."""
    edits: list[int] = row["edits"]
    return edits[-int(QUIET * (len(edits) - 1)) :]


def _ahead(by: By) -> Paired | None:
    return against(by, REGROUP, "mean") if REGROUP in by else None


def _ahead_over_all(rows: Sequence[Row], names: Sequence[str]) -> Paired | None:
    """The mean over scenarios, by the seeds that all of them have."""
    means: list[dict[int, float]] = []
    for label in (SOFA, REGROUP):
        found = [{row["seed"]: row["mean"] for row in by_label(rows, n)[label]} for n in names]
        seeds = set.intersection(*(set(of) for of in found))
        means.append({seed: fmean(of[seed] for of in found) for seed in seeds})
    return paired(*means)


def _made(rows: Sequence[Row], settings: Collection[str], labels: Collection[str] = ()) -> str:
    """What made the rows of a table: those of some settings, and of some contenders or all."""
    here = [row for row in rows if row["setting"] in settings]
    return made_by(row for row in here if not labels or row["method"] in labels) + "\n"


def _all(flags: Sequence[bool]) -> bool:
    """In every seed, and there is one."""
    return bool(flags) and all(flags)


def _of(flags: Sequence[bool]) -> str:
    return f"{sum(flags)} of {len(flags)}"
