"""Methods under differential privacy, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from study.design.contenders import title
from study.design.privacy_settings import EPSILONS, FEDERATIONS, OURS, PRIVATE, setting_name
from study.pages.markdown import NOTHING, bold, difference, in_percent, table, with_interval
from study.rows.estimates import Paired, estimate, paired
from study.rows.row_files import Row, by_seed, column

PRIVACY = "privacy.json"
MEASURES = {"mean": "mean client", "min": "worst client"}
GOAL_AT = 2  # the budget at which goals were set: by how many points to lead
GOALS = {"local": 0.08, "fedavg": 0.15}


def of(rows: Sequence[Row], federation: str, epsilon: float, label: str) -> list[Row]:
    """The rows of a method in a federation with a budget."""
    setting = setting_name(federation, epsilon)
    return [row for row in rows if row["setting"] == setting and row["method"] == label]


def lead(
    rows: Sequence[Row], federation: str, epsilon: float, label: str, key: str
) -> Paired | None:
    """SOFA-FL minus another method, seed by seed."""
    both = (by_seed(of(rows, federation, epsilon, each), key) for each in (OURS, label))
    return paired(*both)


def privacy_tables(rows: Sequence[Row]) -> str:
    """All methods: a table per federation and measure."""
    return "\n".join(_parts(rows))


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for federation, (words, *_) in FEDERATIONS.items():
        here = [row for row in rows if row["setting"].startswith(f"{federation}-e")]
        if not here:
            continue
        yield f"### {federation}: {words}\n"
        for key, name in MEASURES.items():
            yield f"The {name}, in %, by epsilon:\n\n{_table(rows, federation, key)}"
        yield f"SOFA-FL's mean client minus the other's:\n\n{_leads(rows, federation)}"
        yield f"How well the finest groups are clusters (ARI):\n\n{_groups(rows, federation)}"


HEAD = ["", *(f"{epsilon:g}" for epsilon in EPSILONS)]


def _table(rows: Sequence[Row], federation: str, key: str) -> str:
    means = {
        (label, e): fmean(column(found, key))
        for label in PRIVATE
        for e in EPSILONS
        if (found := of(rows, federation, e, label))
    }
    told = [label for label in PRIVATE if label != "oracle"]
    best = {e: max((means[x, e] for x in told if (x, e) in means), default=None) for e in EPSILONS}

    def cell(label: str, e: int) -> str:
        if (label, e) not in means:
            return NOTHING
        text = with_interval(estimate(column(of(rows, federation, e, label), key)))
        return bold(text) if label in told and means[label, e] == best[e] else text

    return table(HEAD, [[title(label), *(cell(label, e) for e in EPSILONS)] for label in PRIVATE])


def _leads(rows: Sequence[Row], federation: str) -> str:
    lines = [
        [
            f"− {title(label)}",
            *(difference(lead(rows, federation, e, label, "mean")) for e in EPSILONS),
        ]
        for label in PRIVATE
        if label != OURS
    ]
    return table(HEAD, lines)


def _groups(rows: Sequence[Row], federation: str) -> str:
    lines = []
    for label in (OURS, "hypcluster"):
        cells = []
        for e in EPSILONS:
            found = [row["finest"] for row in of(rows, federation, e, label)]
            exact = sum(value == 1 for value in found)
            told = f"{fmean(found):.2f}, exact in {exact} of {len(found)}" if found else NOTHING
            cells.append(told)
        lines.append([title(label), *cells])
    return table(HEAD, lines)


def verdicts(rows: Sequence[Row]) -> str:
    """Whether the goals were reached, a sentence each."""
    return "".join(f"- {said}\n" for said in _verdicts(rows))


def _verdicts(rows: Sequence[Row]) -> Iterator[str]:
    for federation in FEDERATIONS:
        for label, goal in GOALS.items():
            if found := lead(rows, federation, GOAL_AT, label, "mean"):
                reached = "reached" if found.estimate.mean >= goal else bold("not reached")
                yield (
                    f"{federation}: {difference(found)} points over {title(label)} at epsilon = "
                    f"{GOAL_AT}; the goal of {in_percent(goal, 0)} is {reached}."
                )
        least = [
            e
            for e in sorted(EPSILONS)
            if all(
                found and all(row["finest"] == 1 for row in found)
                for found in (of(rows, federation, x, OURS) for x in EPSILONS if x >= e)
            )
        ]
        if of(rows, federation, GOAL_AT, OURS):
            down = f"with every seed down to epsilon = {least[0]}" if least else "at no epsilon"
            yield f"{federation}: SOFA-FL's tree has the finest groups exactly {down}."
