"""Pieces of Markdown: tables, shares in percent, differences in points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from textwrap import wrap

from sofa_fl.errors import RunError
from study.rows.estimates import Estimate, Paired

NOTHING = "–"
WIDTH = 120


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with words in its first column and numbers in the others."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows]) + "\n"


def in_percent(value: float | None, digits: int = 2) -> str:
    """`98.12`: a share in percent."""
    return NOTHING if value is None else f"{100 * value:.{digits}f}"


def with_interval(found: Estimate | None, digits: int = 2) -> str:
    """`98.12 ± 0.08`, in percent; without an interval where there is one value only."""
    if found is None:
        return NOTHING
    mean = in_percent(found.mean, digits)
    return f"{mean} ± {in_percent(found.half, digits)}" if isfinite(found.half) else mean


def difference(found: Paired | None) -> str:
    """`+0.12 ± 0.08`, in points."""
    if found is None:
        return NOTHING
    half = found.estimate.half
    text = points(found.estimate.mean)
    return f"{text} ± {100 * half:.2f}" if isfinite(half) else text


def points(value: float) -> str:
    """`+0.12`: a difference of two shares, with a proper minus sign and no minus before a zero."""
    return f"{100 * value:+.2f}".replace("-0.00", "+0.00").replace("-", "−")


def bold(text: str) -> str:
    return f"**{text}**"


def item(*sentences: str) -> str:
    """An item of a list, a sentence per line; one with many names takes several."""
    return "- " + "\n  ".join(line for each in sentences for line in folded(each)) + "\n"


def folded(sentence: str) -> list[str]:
    """A sentence with many names, over several lines."""
    whole = sentence.replace(" ± ", "±")  # not to be torn apart
    lines = wrap(whole, WIDTH, break_long_words=False, break_on_hyphens=False)
    return [line.replace("±", " ± ") for line in lines]


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def seeds_told(seeds: Sequence[int]) -> str:
    """`seed 100`, `seeds 0 and 1`, `seeds 0 to 4`."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' * (len(seeds) > 1)} {listed(list(map(str, seeds)))}"


def between(page: str, name: str, made: str) -> str:
    """A text with something else between two markers, if it has them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in page:
        return page
    before, _, rest = page.partition(begin)
    _, there, after = rest.partition(end)
    if not there:
        raise RunError(f"the page must have {end} after {begin}, but has not; add it")
    return f"{before}{begin}\n" + (f"\n{made}\n" if made else "") + f"{end}{after}"
