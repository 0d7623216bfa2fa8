"""SOFA-FL without each of its parts, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from study.design.contenders import ABLATION, FULL, NO_TREE
from study.design.settings import SETTINGS
from study.pages.markdown import difference, in_percent, table
from study.pages.sharing_words import shared
from study.rows.estimates import estimate, holm, paired
from study.rows.row_files import Row, by_seed, column, of_method


def ablation(rows: Sequence[Row]) -> str:
    """SOFA-FL without each part, against the whole: a table per setting."""
    parts = []
    for setting in SETTINGS.values():
        here = [row for row in rows if row["setting"] == setting.name]
        if here:
            told = f", {words}" if (words := shared(of_method(here, FULL) or here)) else ""
            heading = f"**{setting.name}: {setting.title}{told}**\n"
            tree = "\n".join(_tree_alone(here))
            parts += [heading, _ablation(here), *([f"{tree}\n"] if tree else [])]
    return "\n".join(parts)


def _tree_alone(rows: Sequence[Row]) -> Iterator[str]:
    """What the tree itself contributes."""
    whole, without = of_method(rows, FULL), of_method(rows, NO_TREE)
    for key, name in (("mean", "mean"), ("min", "worst")):
        if gap := paired(by_seed(whole, key), by_seed(without, key)):
            brings = "helps" if gap.is_ahead else "harms" if gap.is_behind else None
            told = brings or "makes no difference that could not be chance"
            yield f"- On the {name} client the tree itself {told}: {difference(gap)} points."


def _ablation(rows: Sequence[Row]) -> str:
    whole = of_method(rows, FULL)
    head = ["", "mean", "worst client", "mean − SOFA-FL's", "worst − SOFA-FL's", "root", "seeds"]
    lines = []
    found = {label: of for label in ABLATION if (of := of_method(rows, label))}
    corrected = [
        holm(
            {
                label: gap
                for label, of in found.items()
                if label != FULL and (gap := paired(by_seed(of, key), by_seed(whole, key)))
            }
        )
        for key in ("mean", "min")
    ]
    for label, of in found.items():
        gaps = ["" if label == FULL else difference(each.get(label)) for each in corrected]
        means = {key: in_percent(estimate(column(of, key)).mean) for key in ("mean", "min", "root")}
        cells = [means["mean"], means["min"], *gaps, means["root"], str(len(of))]
        lines.append([label, *cells])
    return table(head, lines)
