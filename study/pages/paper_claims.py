"""What the paper's text claims, beside our numbers: every verdict is computed from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp, isfinite, log
from statistics import fmean

from study.design.contenders import (
    AS_WRITTEN,
    FIXED,
    MORE_FIXED,
    NONE,
    PAPER_HYPCLUSTER,
    PAPER_K,
    RANDOM,
    TABLE2,
    TABLE2_CONTENDERS,
    table2_label,
    title,
)
from study.pages.markdown import NOTHING, bold, difference, in_percent, listed, points, table
from study.pages.paper_tables import AVERAGES, FAIRNESS, chosen_clusters, table2_rows
from study.rows.estimates import Estimate, Paired, estimate, paired
from study.rows.row_files import Row, by_seed, column, of_method

Curves = Mapping[str, Sequence[Sequence[float]]]  # by label, the loss of every batch of every round
EDGE = 5  # batches that count as the beginning and as the end of a round
SAME, OPPOSITE = "as the paper says", "the opposite of what the paper says"
CHANCE = "could be chance"


def fairness_claims(rows: Sequence[Row]) -> str:
    """SOFA-FL against HypCluster with the paper's number of clusters."""
    theirs = of_method(rows, PAPER_HYPCLUSTER)
    if not theirs:
        return ""
    paper = {key: (ours, hypcluster) for key, _, ours, hypcluster in FAIRNESS}
    lines = [
        "The paper's text says that SOFA-FL is ahead of HypCluster on almost all clients, and that "
        "HypCluster's weakest clients drop to little more than 50%."
    ]
    for label in (AS_WRITTEN, "sofa"):
        for key, name in (("mean", "mean client"), ("min", "worst client")):
            gap = paired(by_seed(of_method(rows, label), key), by_seed(theirs, key))
            if gap:
                reported = paper[key][0] - paper[key][1]
                lines.append(
                    f"- {title(label)} − {title(PAPER_HYPCLUSTER)} on the {name}: "
                    f"{difference(gap)} points (paper: {points(reported)}), "
                    f"{verdict(gap, reported)}."
                )
    worst = fmean(column(theirs, "min"))
    lines.append(
        f"- The worst client of {title(PAPER_HYPCLUSTER)} has {in_percent(worst)}% here and "
        f"{in_percent(paper['min'][1])}% in the paper."
    )
    if chosen := of_method(rows, "hypcluster"):
        lines.append(
            f"- The paper finds HypCluster best with K = {PAPER_K}; validation data chose "
            f"{chosen_clusters(chosen)} here."
        )
    return "\n".join(lines) + "\n"


def sharing_claims(rows: Sequence[Row]) -> str:
    """Each way of sharing against none, on both averages."""
    columns = [label for label in TABLE2_CONTENDERS if table2_rows(rows, label)[NONE]]
    if not columns:
        return ""
    keys = list(AVERAGES)
    reported = dict(zip(keys, zip(*(paper for _, *paper in TABLE2.values()))))
    names = [f"{title(label)}: {name}" for label in columns for name in AVERAGES.values()]
    head = ["minus no sharing, in points", *names]
    head += [f"*paper: {name}*" for name in AVERAGES.values()]
    lines = []
    for at, sharing in enumerate(TABLE2):
        if sharing != NONE:
            gaps = [_against_none(rows, label, sharing, key) for label in columns for key in keys]
            paper = [points(reported[key][at] - reported[key][0]) for key in keys]
            lines.append([sharing, *map(difference, gaps), *paper])
    said = [sentence for label in columns for sentence in _fixed_sharing(rows, label)]
    return (
        "The paper's text says that fixed sharing raises the test accuracy.\n"
        + "".join(f"- {sentence}\n" for sentence in said)
        + "".join(_not_fixed(rows, label) for label in columns)
        + f"\n{table(head, lines)}"
    )


def loss_claims(curves: Curves, seed: int) -> str:
    """By how much the loss rises when a round begins, and whether random sharing makes it rise."""
    rises = {
        (label, sharing): rise_by_round(curves[name])
        for label in TABLE2_CONTENDERS
        for sharing in TABLE2
        if (name := table2_label(label, sharing)) in curves
    }
    columns = [label for label in TABLE2_CONTENDERS if any(key[0] == label for key in rises)]
    lines = [
        [sharing, *(_factor(rises.get((label, sharing))) for label in columns)]
        for sharing in TABLE2
        if any((label, sharing) in rises for label in columns)
    ]
    said = [
        _surge(label, rises[label, RANDOM], rises[label, NONE])
        for label in columns
        if {(label, RANDOM), (label, NONE)} <= rises.keys()
    ]
    if not said:
        return ""
    return (
        "The paper's text says that with random sharing the local loss surges at the beginning of "
        "a round, because new samples arrive.\n"
        "With fixed or no sharing, according to the paper, it does not.\n"
        "The table shows this rise: the loss at the beginning of a round divided by the loss at "
        "the end of the round before.\n"
        f"The former is the highest loss of the first {EDGE} batches, the latter the mean of the "
        f"last {EDGE}.\n"
        "Each cell is the geometric mean over all rounds from the second on, with its 95% "
        f"interval, for seed {seed}.\n\n"
        + table(["sharing", *map(title, columns)], lines)
        + "\n"
        + "".join(f"- {sentence}\n" for sentence in said)
    )


def rise_by_round(rounds: Sequence[Sequence[float]]) -> dict[int, float]:
    """The logarithm of the rise at the beginning of every round from the second on."""
    after_warmup = rounds[1:]
    return {
        number: log(max(after[:EDGE]) / fmean(before[-EDGE:]))
        for number, (before, after) in enumerate(pairwise(after_warmup), start=2)
    }


def verdict(gap: Paired, reported: float) -> str:
    """What a difference says about the one that the paper reports."""
    if not (gap.is_ahead or gap.is_behind):
        return "which " + CHANCE
    return SAME if gap.is_ahead == (reported > 0) else bold(OPPOSITE)


def _fixed_sharing(rows: Sequence[Row], label: str) -> Iterator[str]:
    found = {
        (sharing, key): gap
        for key in AVERAGES
        for sharing in (FIXED, MORE_FIXED)
        if (gap := _against_none(rows, label, sharing, key))
    }
    for key, name in AVERAGES.items():
        gaps = {sharing.split(",")[0]: gap for (sharing, of), gap in found.items() if of == key}
        raised = [f"{ratio} ({difference(g)})" for ratio, g in gaps.items() if g.is_ahead]
        lowered = [f"{ratio} ({difference(g)})" for ratio, g in gaps.items() if g.is_behind]
        said = [f"raises it at a ratio of {listed(raised)}, {SAME}"] if raised else []
        said += [f"lowers it at a ratio of {listed(lowered)}, {bold(OPPOSITE)}"] if lowered else []
        if gaps and not said:
            said = ["makes no difference that could not be chance"]
        if said:
            yield f"{title(label)}, {name}: fixed sharing {', and '.join(said)}."


def _not_fixed(rows: Sequence[Row], label: str) -> str:
    """A warning if fixed sharing has disclosed far more than its ratio: then it was not fixed."""
    found = [table2_rows(rows, label)[sharing] for sharing in (FIXED, MORE_FIXED)]
    shares = [fmean(column(rows, "disclosed")) for rows in found if is_too_much(rows)]
    if not shares:
        return ""
    gone = listed([f"{in_percent(share, 0)}%" for share in shares])
    return (
        f"\nThe rows of {title(label)} with fixed sharing, here and in the figures below, are "
        "older than draws that stay fixed when received samples are shared again.\n"
        f"Their clients disclosed {gone} of their samples, so they do not test what the paper says "
        "of fixed sharing.\n"
    )


def is_too_much(rows: Sequence[Row]) -> bool:
    """Whether clients disclosed much more than what one draw takes."""
    return any(row.get("disclosed", 0.0) > 1.5 * row["sharing"] for row in rows)


def _surge(label: str, with_sharing: Mapping[int, float], without: Mapping[int, float]) -> str:
    gap = paired(with_sharing, without)
    assert gap is not None  # rounds are the same in all runs
    ratio = f"{exp(gap.estimate.mean):.2f} times the rise without sharing"
    if gap.is_ahead:
        said = f"{ratio}.\n  Random sharing makes the loss surge, {SAME}"
    elif gap.is_behind:
        said = f"{ratio}.\n  Random sharing does not make the loss surge, {bold(OPPOSITE)}"
    else:
        said = f"{ratio}, which {CHANCE}.\n  The surge is **not** confirmed"
    return f"{title(label)}: the rise with random sharing is {said}."


def _against_none(rows: Sequence[Row], label: str, sharing: str, key: str) -> Paired | None:
    found = table2_rows(rows, label)
    return paired(by_seed(found[sharing], key), by_seed(found[NONE], key))


def _factor(rises: Mapping[int, float] | None) -> str:
    """`1.07 (0.87 to 1.32)`."""
    if not rises:
        return NOTHING
    found: Estimate = estimate(list(rises.values()))
    interval = f" ({exp(found.low):.2f} to {exp(found.high):.2f})" if isfinite(found.half) else ""
    return f"{exp(found.mean):.2f}{interval}"
