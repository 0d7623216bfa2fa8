"""`docs/drift.md`, on clients that change and clients that fail; from `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from study.design.drift_settings import BAD, DRIFTERS, FAULTY, SITUATIONS, VARIANTS
from study.pages import drift_goals as goals
from study.pages.drift_tables import drift_tables, standing
from study.pages.faults_tables import attendance_parts, bad_parts
from study.pages.made_by import made_by
from study.pages.markdown import listed, seeds_told, table
from study.pages.page_parts import (
    command,
    common,
    engines_of,
    has_setting,
    in_common,
    made_from,
    over,
    picture,
    rate_fell,
)
from study.rows.row_files import Row, read_rows

DRIFT, FAULTS, TRIED = "drift.json", "faults.json", "drift_sweep.json"


def drift_page(out: Path, pages: Path) -> str:
    """All of `docs/drift.md`."""
    return "\n".join(_sections(out, pages))


def own_of(row: Row) -> dict[str, Any]:
    """The overrides of a run that were chosen on validation data."""
    tried = {key for values in DRIFTERS[row["method"]].grid for key in values}
    return {key: value for key, value in row["overrides"].items() if key in tried}


def _sections(out: Path, pages: Path) -> Iterator[str]:
    drift, faults, tried = (read_rows(out / name) for name in (DRIFT, FAULTS, TRIED))
    yield "# Clients that change, and clients that fail\n"
    yield made_from(out)
    if not drift and not faults:
        yield (
            "There are no results yet: `python -m study drift` and `python -m study faults` "
            "make them.\n"
        )
        return
    yield (
        "The rows of one table may differ in code and in precision; what is below each says so.\n"
        "The command above a table makes all of them by the present code, and in float32 if it "
        "names no precision.\n"
        "All rows were made with earlier rules: a client whose new data contradicted its cluster "
        "looked for another one before it trained (an alert).\n"
        "Rows of SOFA-FL's variants by code f7687225 or before are of older rules.\n"
        "By these, a client mostly started from its parent's effective model, and a split needed "
        "only a gain of 0.1.\n" + rate_fell("all methods")
    )
    if drift:
        yield f"## Clients that change\n\n{_what_was_run(drift, 'drift')}\n{WHO}"
        yield from _chosen(tried, drift)
        yield from picture(pages, "drift")
        for heading, intro, make in GOALS:
            if words := make(drift):
                yield f"### {heading}\n\n{intro}\n{words}"
        if made := drift_tables(drift):
            yield f"## Every scenario\n\n{READING}\n{standing(drift)}\n{made}"
    if faults:
        yield f"## Clients that fail\n\n{_what_was_run(faults, 'faults')}\n{SOFA_ALONE}"
        if bad := list(bad_parts(faults)):
            yield "### Bad updates\n\n" + BAD_UPDATES + "\n" + "\n".join(bad)
        if attendance := list(attendance_parts(faults)):
            yield (
                "### Partial participation, dropouts and stragglers\n\n"
                + BUDGET
                + "\n"
                + "\n".join(attendance)
            )


WHO = """\
All contenders have the same local training: a learning rate of 2e-3, and the class-mix correction.
The *frozen tree* changes only when clients join or leave.
*DMAC every round* builds a new tree in every round.
HypCluster is given the true number of groups (the largest at any time).
The oracle is FedAvg within the true groups, which it is given in every round; a new group starts from the model of its first client.
"""

READING = """\
*Before*, *first round after* and *mean after* are the mean client, in %.
They are taken in the round before the change, in the first round with the new data, and over all rounds since the change.
*Worst after* is the worst client over all rounds since the change.
Rounds are counted from the change: round 1 is the first with the new data.
*Rounds to the truth* counts the rounds until the tree agrees with the true groups (adjusted Rand index of at least 0.95).
The next two columns count the rounds until the mean client is within a point of SOFA-FL's level before the change, and of the method's own level.
All three must last until the next change; with two changes, a cell has one number for each.
*Edits* are edits of the tree, and *moved* is the number of clients that changed their cluster, both since the change.
Differences are SOFA-FL's number minus the other's, seed by seed, in points.
Their 95% intervals (Student's t) are after Holm's correction for all differences of a column.
"""

SOFA_ALONE = "All of these are runs of SOFA-FL with its defaults, except as stated.\n"

BAD_UPDATES = f"""\
{BAD:.0%} of the clients, drawn by the seed, send bad updates in every round.
The table shows the mean of the other, honest clients at the end, in %, by how a cluster averages its clients.
The last two columns compare it with the same clients in a run without bad clients, with the same average and with the plain mean.
The agreement of the tree with the true groups counts only honest clients.
"""

BUDGET = """\
With a participation of 0.3 there are 67 rounds instead of 20, so that clients are asked to train on as many samples.
A client that does not answer, or finishes only some of its batches, counts in full, so clients train on fewer samples than they are asked to.
*Updates used* counts the updates that arrived and were used, including the warm-up.
"""

GOALS = (
    (
        "Recovery in time",
        "After a change, the tree should agree with the new truth within 3 rounds.\n"
        "The mean client should be within a point of SOFA-FL's level before the change within 5 "
        "rounds.\n"
        "Both must last.\nThe table shows the number of seeds in which they do.\n",
        goals.recovery_words,
    ),
    (
        "Against a new tree every round",
        "The table compares the mean client over all rounds since the change, seed by seed.\n"
        "[The benchmarks](../benchmarks/README.md) have the running times of SHAPE and DMAC.\n",
        goals.regroup_words,
    ),
    ("Newcomers", "Round 1 is the round in which they join.\n", goals.churn_words),
    (
        "Where nothing changes",
        "*Moved* is the number of clients that change their cluster from one round to the next, "
        "by the best matching of the clusters.\n",
        goals.still_words,
    ),
)


def _what_was_run(rows: Sequence[Row], target: str) -> str:
    known = SITUATIONS if target == "drift" else FAULTY
    varied = {key for values in VARIANTS.values() for key in values}
    varied |= {key for contender in DRIFTERS.values() for v in contender.grid for key in v}
    given = common(rows, varied)
    lines = [f"- {s.name}: {s.title}" for s in known.values() if has_setting(rows, s.name)]
    return (
        "\n".join(lines)
        + f"\n\n{over(rows)}\n"
        + "The data are MNIST, the network is the paper's CNN, and a client trains 25 batches of "
        + f"100 samples in a round.\n{DRIFTING if target == 'drift' else ''}"
        + f"{engines_of(rows)}{in_common(given)}\n{command(target, rows, given)}"
    )


DRIFTING = (
    "There are 20 rounds, the change is in round 10, and no samples are shared.\n"
    "The scenarios have 24 clients in four rotations.\n"
)


def _chosen(tried: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    """The parameter of FedDrift, and how it was chosen."""
    ran = {row["setting"]: own_of(row) for row in rows if row["method"] == "feddrift"}
    seeds = sorted({row["seed"] for row in tried})
    if ran and seeds:
        values = [listed([f"{key}={x:g}" for key, x in own.items()]) for own in ran.values()]
        yield (
            f"FedDrift has the best of 0.1, 0.3 and 1, chosen by the mean client since the change, "
            f"on validation data of {seeds_told(seeds)} (`{TRIED}`):\n\n"
            + table(["", *ran], [["FedDrift", *values]])
            + f"\n{made_by(tried)}"
        )
