"""The benchmark as Markdown: a table per setting and sharing, and where SOFA-FL does not win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sofa_fl.study.contenders import CONTENDERS, title
from sofa_fl.study.markdown import bold, difference, listed, share, table
from sofa_fl.study.rows import Row
from sofa_fl.study.settings import SETTINGS
from sofa_fl.study.statistics import Paired, paired
from sofa_fl.study.tables import by_seed, column

# Key of a row, its name, and which end of it is better.
MEASURES = (
    ("mean", "mean", +1),
    ("min", "worst", +1),
    ("std", "std", -1),
    ("full", "whole test", +1),
    ("root", "root", +1),
)
GROUPS = (("ari", "groups, ARI", +1), ("purity", "purity", +1))
CLEAR = 0.8  # share of the seeds that a win takes: 4 of 5
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
            what = f"A share of {sharing:g} is shared" if sharing else "Nothing is shared"
            yield f"{what}:\n\n{one_table(by)}\n{not_won(by)}\n"


def by_method(rows: Sequence[Row], sharing: float) -> dict[str, list[Row]]:
    """The rows of every contender, in the contenders' order."""
    here = [row for row in rows if row["sharing"] == sharing]
    found = {label: [row for row in here if row["method"] == label] for label in CONTENDERS}
    return {label: rows for label, rows in found.items() if rows}


def one_table(by: By) -> str:
    """A row per contender; the best of a column is bold."""
    measures = [*MEASURES, *(m for m in GROUPS if any(m[0] in rows[0] for rows in by.values()))]
    means = {(label, key): _mean(rows, key) for label, rows in by.items() for key, _, _ in measures}
    best = {
        key: max(better * x for label in by if (x := means[label, key]) is not None)
        for key, _, better in measures
    }
    head = ["", *(name for _, name, _ in measures), "samples", "seeds"]
    head += ["SOFA-FL − it: mean", "worst", "ahead in seeds: mean", "worst"]
    lines = []
    for label, rows in by.items():
        cells = [
            bold(share(x))
            if (x := means[label, key]) is not None and better * x == best[key]
            else share(x)
            for key, _, better in measures
        ]
        samples = sorted({row["samples_trained"] for row in rows})
        cells += [" / ".join(f"{n:,}" for n in samples), str(len(rows))]
        gaps = [against(by, label, key) for key in ("mean", "min")]
        cells += ["" if label == "sofa" else difference(gap) for gap in gaps]
        cells += [f"{gap.wins} of {gap.estimate.n}" if gap else "" for gap in gaps]
        lines.append([title(label), *cells])
    return table(head, lines)


def against(by: By, label: str, key: str) -> Paired | None:
    """SOFA-FL minus a contender, seed by seed; None against itself or without a common seed."""
    if label == "sofa" or "sofa" not in by:
        return None
    return paired(by_seed(by["sofa"], key), by_seed(by[label], key))


def not_won(by: By) -> str:
    """A sentence per measure that says whom SOFA-FL is behind, and of whom not clearly ahead."""
    if "sofa" not in by or len(by) < 2:
        return ""
    return "\n".join(f"- {_sentence(by, key, name)}" for key, name in NAMES.items()) + "\n"


NAMES = {"mean": "the mean client", "min": "the worst client"}


def _sentence(by: By, key: str, name: str) -> str:
    gaps = {label: against(by, label, key) for label in by}
    behind = {label: gap for label, gap in gaps.items() if gap and gap.is_behind}
    unclear = {
        label: gap
        for label, gap in gaps.items()
        if gap and label not in behind and gap.wins < CLEAR * gap.estimate.n
    }
    said = []
    if behind:
        names = [f"{title(label)} ({difference(gap)})" for label, gap in behind.items()]
        said.append(f"behind {listed(names)}")
    if unclear:
        names = [
            f"{title(label)} ({difference(gap)}, {gap.wins} of {gap.estimate.n} seeds)"
            for label, gap in unclear.items()
        ]
        said.append(f"not clearly ahead of {listed(names)}")
    if not said:
        return f"On {name} SOFA-FL is ahead of all others."
    return f"On {name} SOFA-FL does **not** win: it is {', and '.join(said)}."


def _mean(rows: Sequence[Row], key: str) -> float | None:
    if any(key not in row for row in rows):
        return None
    values = column(rows, key)
    return sum(values) / len(values)
