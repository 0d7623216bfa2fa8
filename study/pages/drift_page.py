"""The page on clients that change and that fail, `docs/drift.md`: out of `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sofa_fl.experiment.storage.disk import write_text
from study.design.situations import BAD, DRIFTERS, FAULTY, SITUATIONS, VARIANTS
from study.pages import drift_goals as goals
from study.pages.drift_tables import drift_tables, standing
from study.pages.faults_tables import attendance_parts, bad_parts
from study.pages.markdown import listed, table
from study.pages.results_page import common, over, picture, seeds_told
from study.rows.row_files import Row, read_rows

DRIFT, FAULTS, TRIED = "drift.json", "faults.json", "drift_sweep.json"
PAGE = "drift.md"


def write_page(out: Path, pages: Path) -> Path:
    """Write it."""
    pages.mkdir(parents=True, exist_ok=True)
    write_text(pages / PAGE, drift_page(out, pages))
    return pages / PAGE


def drift_page(out: Path, pages: Path) -> str:
    """All of `docs/drift.md`."""
    return "\n".join(_sections(out, pages))


def own_of(row: Row) -> dict[str, Any]:
    """Of what a run was given, what there was to choose."""
    tried = {key for values in DRIFTERS[row["method"]].grid for key in values}
    return {key: value for key, value in row["overrides"].items() if key in tried}


def _sections(out: Path, pages: Path) -> Iterator[str]:
    drift, faults, tried = (read_rows(out / name) for name in (DRIFT, FAULTS, TRIED))
    yield "# Clients that change, and clients that fail\n"
    yield f"Made by `sofa-fl reproduce docs` out of `{out.name}/*.json`; not edited by hand.\n"
    if not drift and not faults:
        yield (
            "There are no results yet: `sofa-fl reproduce drift` and `sofa-fl reproduce faults` "
            "make them.\n"
        )
        return
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
            yield "### Not asked, not answering, late\n\n" + BUDGET + "\n" + "\n".join(attendance)


WHO = """\
All have the same local training: a learning rate of 2e-3 that falls to 0.3 of it, and the
class-mix correction. *SHAPE only* is SOFA-FL whose clients do not look for another place by
themselves (`sofa.alert` out of reach); the *frozen tree* besides never changes but for who comes
and goes. *DMAC every round* makes the tree anew each round. HypCluster is told the true number of
groups, the most there are at a time. The oracle is FedAvg among those who belong together, which
it is told in every round; a group that is new begins with what its first client has used so far.
"""

READING = """\
The mean client in the round before the change, in the first round with the new data, and as a mean
over all rounds since; the worst client likewise; in %. Rounds count from the change on, 1 being
the first with the new data: until the tree is the truth (adjusted Rand index of at least 0.95), and
until the mean client is within a point of SOFA-FL's and of its own level before the change, to
stay until the next change; where there are two changes, after each. Edits are those of SOFA-FL's
tree, and `moved` says how many clients changed their cluster, both since the change. Differences
are SOFA-FL's number minus the other's, seed by seed, in points, with 95% intervals (Student's t).
"""

SOFA_ALONE = "All of this is SOFA-FL, with its defaults but for what is said.\n"

BAD_UPDATES = f"""\
{BAD:.0%} of the clients, drawn by the seed, send bad updates all the time. The mean client of the
others at the end, in %, by how a cluster averages its clients; and against what the same clients
have in the run without bad ones, with the same average and with the plain mean. The tree's
agreement with the true groups is over honest clients alone.
"""

BUDGET = """\
Where 0.3 of the clients are asked in a round there are 67 rounds in place of 20, so that as many
samples are asked for. That is what is counted: whoever then does not answer, or manages only a part
of its batches, counts in full, so less is trained than that. `updates used` counts those that
arrived, warm-up included.
"""

GOALS = (
    (
        "Back in time",
        "The tree should be the new truth within 3 rounds, and the mean client within a point of "
        "SOFA-FL's level before the change within 5, both to stay. In how many seeds:\n",
        goals.recovery_words,
    ),
    (
        "Against a new tree every round",
        "The mean client over all rounds since the change, seed by seed. What a SHAPE pass and "
        "what DMAC take among many clients is in [benchmarks](../benchmarks/README.md).\n",
        goals.regroup_words,
    ),
    ("Newcomers", "From the round on in which they come:\n", goals.churn_words),
    (
        "Where nothing changes",
        "`moved`: clients that change their cluster from a round to the next, by the best matching "
        "of the clusters.\n",
        goals.still_words,
    ),
)


def _what_was_run(rows: Sequence[Row], target: str) -> str:
    known = SITUATIONS if target == "drift" else FAULTY
    varied = {key for values in VARIANTS.values() for key in values}
    varied |= {key for contender in DRIFTERS.values() for v in contender.grid for key in v}
    given = [f"{key}={value}" for key, value in common(rows, varied).items()]
    also = f" Everywhere {listed([f'`{each}`' for each in given])}." if given else ""
    lines = [f"- {s.name}: {s.title}" for s in known.values() if _has(rows, s.name)]
    sets = "".join(f" --set {each}" for each in given)
    seeds = sorted({row["seed"] for row in rows})
    engines = listed(sorted({row["engine"] for row in rows}))
    precision = "" if any("precision" in each for each in given) else " Precision: float32."
    return (
        "\n".join(lines)
        + f"\n\n{over(rows)} MNIST, the paper's CNN, 25 batches of 100 per client and round"
        + f"{DRIFTING if target == 'drift' else ''}. Engine: {engines}.{precision}{also}\n\n"
        + f"```\nsofa-fl reproduce {target} --seeds {','.join(map(str, seeds))}{sets}\n```\n"
    )


DRIFTING = (
    "; 20 rounds, the change in round 10, nothing shared, and in the scenarios 24 clients in four "
    "rotations"
)


def _chosen(tried: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    """What FedDrift ran with, and how that was chosen."""
    ran = {row["setting"]: own_of(row) for row in rows if row["method"] == "feddrift"}
    seeds = sorted({row["seed"] for row in tried})
    if ran and seeds:
        values = [listed([f"{key}={x:g}" for key, x in own.items()]) for own in ran.values()]
        yield (
            f"For FedDrift the best of 0.1, 0.3 and 1 was chosen, by the mean client since the "
            f"change, on validation data of {seeds_told(seeds)} (`{TRIED}`):\n\n"
            + table(["", *ran], [["FedDrift", *values]])
        )


def _has(rows: Sequence[Row], setting: str) -> bool:
    return any(row["setting"] == setting for row in rows)
