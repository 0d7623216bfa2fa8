"""The benchmark as Markdown: a table per setting and sharing, and where SOFA-FL does not win."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from study.design.contenders import CONTENDERS, title
from study.design.settings import SETTINGS, Setting
from study.pages.made_by import made_by
from study.pages.markdown import bold, difference, in_percent, item, listed, table
from study.pages.sharing_words import shared
from study.rows.estimates import Paired, holm, paired
from study.rows.row_files import Row, by_seed, column

# Key of a row, its name, and which end of it is better.
MEASURES = (
    ("mean", "mean", +1),
    ("min", "worst", +1),
    ("std", "std", -1),
    ("full", "whole test", +1),
    ("root", "root", +1),
)
# Only where rows have them.
GROUPS = (("ari", "groups: ARI", +1), ("purity", "purity", +1), ("fscore", "FScore", +1))
BYTES = (("down", "MB down a round", -1), ("up", "up", -1))
NAMES = {"mean": "the mean client", "min": "the worst client", "full": "the whole test set"}
CLEAR = 0.8  # share of the seeds in which a winner is ahead: 4 of 5
By = Mapping[str, Sequence[Row]]  # the rows of every contender


def benchmark_tables(rows: Sequence[Row]) -> str:
    """All settings, one under the other."""
    return "\n".join(_parts(rows))


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    for name, setting in SETTINGS.items():
        here = [row for row in rows if row["setting"] == name]
        if not here:
            continue
        yield f"### {name}: {setting.title}\n"
        for sharing in sorted({row["sharing"] for row in here}):
            by = by_method(here, sharing)
            what = (
                f"With {shared([row for of in by.values() for row in of])}"
                if sharing
                else "Without sharing"
            )
            yield f"{what}:\n\n{one_table(by)}\n{not_won(by)}{not_run(by, setting)}"


def by_method(rows: Sequence[Row], sharing: float) -> dict[str, list[Row]]:
    """The rows of every contender, in the contenders' order."""
    here = [row for row in rows if row["sharing"] == sharing]
    found = {label: [row for row in here if row["method"] == label] for label in CONTENDERS}
    return {label: rows for label, rows in found.items() if rows}


def one_table(by: By) -> str:
    """A row per contender; the best of a column is bold."""
    some = (m for m in (*GROUPS, *BYTES) if any(_has(rows, m[0]) for rows in by.values()))
    measures = [*MEASURES, *some]
    means = {(label, key): _mean(rows, key) for label, rows in by.items() for key, _, _ in measures}
    known = {
        key: [better * x for label in by if (x := means[label, key]) is not None]
        for key, _, better in measures
    }
    best = {key: max(values) for key, values in known.items() if len(values) > 1}
    trained = {label: {row["samples_trained"] for row in rows} for label, rows in by.items()}
    seeds = {len(rows) for rows in by.values()}
    # What is the same in all rows is told below, not in a column.
    columns = ["seeds"] if len(seeds) > 1 else []
    head = ["", *(name for _, name, _ in measures), *columns]
    head += ["SOFA-FL − it: mean", "worst", "ahead in seeds: mean", "worst"]
    lines = []
    corrected = {key: gaps_of(by, key) for key in ("mean", "min")}
    for label, rows in by.items():
        cells = [
            bold(_number(key, x))
            if (x := means[label, key]) is not None and better * x == best.get(key)
            else _number(key, x)
            for key, _, better in measures
        ]
        cells += [str(len(rows)) for _ in columns]
        gaps = [of.get(label) for of in corrected.values()]
        cells += ["" if label == "sofa" else difference(gap) for gap in gaps]
        cells += [f"{gap.wins} of {gap.estimate.n}" if gap else "" for gap in gaps]
        lines.append([title(label), *cells])
    told = [f"Samples trained per run: {_samples_told(trained)}."]
    told += [f"Seeds: {num}." for num in seeds if not columns]
    made = made_by(row for rows in by.values() for row in rows)
    return "\n".join([table(head, lines), *told, made])


def _samples_told(trained: Mapping[str, Set[int]]) -> str:
    """What most contenders trained on, and then those that trained on something else."""
    numbers = {
        label: " to ".join(f"{num:,}" for num in sorted({min(of), max(of)}))
        for label, of in trained.items()
    }
    ((usual, _),) = Counter(numbers.values()).most_common(1)
    others = [f"{title(label)} {num}" for label, num in numbers.items() if num != usual]
    return "; ".join([usual, *others])


def against(by: By, label: str, key: str) -> Paired | None:
    """SOFA-FL minus a contender, seed by seed; None against itself or without a common seed."""
    if label == "sofa" or "sofa" not in by:
        return None
    return paired(by_seed(by["sofa"], key), by_seed(by[label], key))


def gaps_of(by: By, key: str) -> dict[str, Paired]:
    """SOFA-FL minus every contender, after Holm's correction for all of them."""
    return holm({label: gap for label in by if (gap := against(by, label, key))})


def not_won(by: By) -> str:
    """A sentence per measure: what SOFA-FL is behind, and what it is not clearly ahead of."""
    if "sofa" not in by or len(by) < 2:
        return ""
    return "".join(
        item(*_sentences(by, key, name)) for key, name in NAMES.items() if _all_have(by, key)
    )


def not_run(by: By, setting: Setting) -> str:
    """Contenders without rows, or with fewer seeds than others."""
    most = max(map(len, by.values()))
    fitting = [label for label, contender in CONTENDERS.items() if contender.fits(setting)]
    none = [title(label) for label in fitting if label not in by]
    fewer = [
        f"{title(label)} ({len(by[label])} of {most} seeds)"
        for label in by
        if len(by[label]) < most
    ]
    return left_out(none, fewer)


def left_out(none: Sequence[str], fewer: Sequence[str]) -> str:
    """Who was not run, and who not with all seeds."""
    text = item(f"Not run: {listed(none)}.") if none else ""
    return text + item(f"Not yet with all seeds: {listed(fewer)}.") if fewer else text


def _sentences(by: By, key: str, name: str) -> Iterator[str]:
    gaps = gaps_of(by, key)
    behind = [label for label, gap in gaps.items() if gap.is_behind]
    unclear = [label for label, gap in gaps.items() if label not in behind and not _leads(gap)]
    slight = [
        label for label, gap in gaps.items() if label not in behind + unclear and not gap.is_ahead
    ]
    if behind or unclear:
        yield f"On {name} SOFA-FL does **not** win."
    else:
        yield f"On {name} SOFA-FL is ahead of all others in at least {CLEAR:.0%} of the seeds."
    if behind:
        yield f"It is behind {listed(_named(gaps, behind))}."
    if unclear:
        yield f"It is not clearly ahead of {listed(_named(gaps, unclear, with_seeds=True))}."
    if slight:
        yield f"Its lead over {listed(_named(gaps, slight))} may be chance."


def _leads(gap: Paired) -> bool:
    """Ahead in most seeds and on average: one seed far behind may outweigh four slightly ahead."""
    return gap.wins >= CLEAR * gap.estimate.n and gap.estimate.mean > 0


def _named(
    gaps: Mapping[str, Paired], labels: Sequence[str], *, with_seeds: bool = False
) -> list[str]:
    """`Ditto (+0.02 ± 0.11, 3 of 5 seeds)`."""
    names = []
    for label in labels:
        gap = gaps[label]
        seeds = f", {gap.wins} of {gap.estimate.n} seeds" if with_seeds else ""
        names.append(f"{title(label)} ({difference(gap)}{seeds})")
    return names


def _number(key: str, value: float | None) -> str:
    """In percent, unless it is an index or a size."""
    if value is None or key not in ("ari", "fscore", "down", "up"):
        return in_percent(value)
    is_tiny = key in ("down", "up") and 0 < value < 0.1
    return f"{value:.2g}" if is_tiny else f"{value:.2f}"


def _has(rows: Sequence[Row], key: str) -> bool:
    return all(key in row for row in rows)


def _all_have(by: By, key: str) -> bool:
    return all(_has(rows, key) for rows in by.values())


def _mean(rows: Sequence[Row], key: str) -> float | None:
    if not _has(rows, key):
        return None
    values = column(rows, key)
    return sum(values) / len(values)


def standing(rows: Sequence[Row]) -> str:
    """In how many of all comparisons SOFA-FL is ahead and behind."""
    places = []
    for setting in SETTINGS:
        here = [row for row in rows if row["setting"] == setting]
        places += [by_method(here, sharing) for sharing in sorted({r["sharing"] for r in here})]
    return count_leads(places, "a method, a setting, a sharing")


def count_leads(places: Sequence[By], what: str) -> str:
    """In how many comparisons SOFA-FL is ahead and behind; `what` says what one of them is."""
    said = []
    for key, name in NAMES.items():
        gaps = {
            (at, label): gap
            for at, by in enumerate(places)
            if _all_have(by, key)
            for label in by
            if (gap := against(by, label, key))
        }
        if not gaps:
            continue
        (ahead, behind), (clearly, not_at_all) = map(_split, (gaps, holm(gaps)))
        said.append(
            item(
                f"On {name}: {len(gaps)} comparisons ({what}).",
                f"The 95% interval of SOFA-FL's lead is above zero in {ahead}, below zero in "
                f"{behind}, and contains zero in {len(gaps) - ahead - behind}.",
                f"After Holm's correction for all of them, it is above zero in {clearly} and below "
                f"in {not_at_all}.",
            )
        )
    return "".join(said)


def _split(gaps: Mapping[tuple[int, str], Paired]) -> tuple[int, int]:
    """How many are above zero, and how many below."""
    return sum(g.is_ahead for g in gaps.values()), sum(g.is_behind for g in gaps.values())
