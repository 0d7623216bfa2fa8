"""The results of several methods side by side, as text and for a notebook."""

from __future__ import annotations

from html import escape

from sofa_fl.api.result import Result
from sofa_fl.report.intervals import Interval, interval_of, paired_differences
from sofa_fl.report.words import table_score


class Comparison(dict[str, list[Result]]):
    """The results of every method by name, one per seed."""

    def means(self) -> dict[str, Interval]:
        """The clients' mean score by method; ± is a 95% interval over seeds."""
        return {name: interval_of([result.mean for result in runs]) for name, runs in self.items()}

    def differences(self) -> dict[str, Interval]:
        """Every method's mean score minus the first one's, seed by seed, with a 95% interval."""
        titles = {runs[0].summary["title"]: name for name, runs in self.items()}
        found = paired_differences([result.summary for runs in self.values() for result in runs])
        return {titles[title]: gap for title, gap in found.items()}

    def __repr__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ("  ".join(f"{c:<{wide}}" for c, wide in zip(row, widths)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        """A header row, then one row per method."""
        first = next(iter(self), "")
        gaps = self.differences()
        rows = [["method", "mean of the clients", "worst client", f"against {first}"]]
        for name, runs in self.items():
            metric = runs[0].metric
            worst = interval_of([result.worst for result in runs])
            mean = self.means()[name]
            gap = interval_text(gaps[name], metric, signed=True) if name in gaps else ""
            rows.append([name, interval_text(mean, metric), interval_text(worst, metric), gap])
        return rows


def interval_text(interval: Interval, metric: str, *, signed: bool = False) -> str:
    """`97.12 ± 0.20`, or only the mean if there is one value."""
    sign = "+" if signed and interval.mean > 0 else ""
    text = f"{sign}{table_score(interval.mean, metric)}"
    if interval.half_width is None:
        return text
    return f"{text} ± {table_score(interval.half_width, metric)}"
