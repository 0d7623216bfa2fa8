"""The result of a run, and those of several methods side by side: scores, tables, predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sofa_fl.data.columns import Table
from sofa_fl.errors import RunError
from sofa_fl.experiment.run import loop
from sofa_fl.experiment.serving import model_files as serving
from sofa_fl.experiment.storage.events import metric_of, score_name
from sofa_fl.methods.method import Method
from sofa_fl.models.networks import NetworkFactory
from sofa_fl.report.history import Round, read_round, read_rounds
from sofa_fl.report.intervals import Interval, interval_of, paired_differences
from sofa_fl.report.page import REPORT
from sofa_fl.report.tree_svg import tree_svg
from sofa_fl.report.words import client_name, number, plus_note, score, table_score

SHOWN = 12  # clients in a notebook's table


@dataclass(frozen=True, slots=True)
class ClientScore:
    """A client's score at the end of a run.

    Attributes:
        client: The client's number.
        name: The client's name, such as `cleveland`, or `client 3` if it has none.
        score: Accuracy, or R² in regression, on its own test samples; None if it has no score.
        cluster: The client's parent in the tree; None in a tree of one client.
    """

    client: int
    name: str
    score: float | None
    cluster: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Result(loop.RunResult):
    """A run that has ended.

    Attributes:
        run: The run folder.
        summary: The contents of `summary.json`.
        view: The tree, a model for every node, and the model that each client uses.
        network: The network that was passed to the run, for `predict` and `export`.
        method: The method that was passed to the run, likewise.
    """

    network: NetworkFactory | None = field(default=None, compare=False)
    method: Method[Any] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, done: loop.RunResult, own: loop.Own) -> Result:
        """The same result, with the objects that were passed from Python."""
        return cls(done.run, done.summary, done.view, own.network, own.method)

    @property
    def mean(self) -> float:
        """The mean score of the clients: accuracy, or R² in regression."""
        return float(self.summary["client"]["mean"])

    @property
    def worst(self) -> float:
        """The lowest score of a client."""
        return float(self.summary["client"]["min"])

    @property
    def metric(self) -> str:
        """The name of the score: `accuracy`, or `r2` in regression."""
        return metric_of(self.summary)

    @property
    def notes(self) -> list[str]:
        """Sentences about what went wrong, if anything did."""
        return list(self.summary["notes"])

    @property
    def report(self) -> Path:
        """The report, an HTML file."""
        return self.run / REPORT

    @property
    def clients(self) -> tuple[ClientScore, ...]:
        """Every client's score after the last round."""
        return _scores(read_round(self.run))

    def rounds(self) -> list[Round]:
        """Every round with its tree, scores and edits; the first is the warm-up."""
        return read_rounds(self.run)

    def columns(self) -> dict[str, list[Any]]:
        """A mapping of columns, with one row per round and client; see `frame`."""
        rows = [(record.round, one) for record in self.rounds() for one in _scores(record)]
        return {
            "round": [round for round, _ in rows],
            "client": [one.client for _, one in rows],
            "name": [one.name for _, one in rows],
            self.metric: [one.score for _, one in rows],
            "cluster": [one.cluster for _, one in rows],
        }

    def frame(self) -> Any:
        """A `pandas.DataFrame` with a row per round and client: name, score and cluster."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise RunError(
                "frame() needs pandas: pip install pandas; columns() returns the same data "
                "without it"
            ) from None
        return pandas.DataFrame(self.columns())

    def predict(
        self, x: ArrayLike | Table, *, client: str | int | None = None, node: str | int = "root"
    ) -> NDArray[np.float32]:
        """The outputs of the model that a client uses, or of a node's model, for raw inputs.

        `client` is a name or a number. The other arguments are as in `sofa_fl.predict`.
        """
        return serving.predict(
            self.run, x, node=_node(client, node), network=self.network, method=self.method
        )

    def export(
        self,
        file: Path | str,
        *,
        client: str | int | None = None,
        node: str | int = "root",
        format: serving.Format | None = None,
    ) -> serving.Exported:
        """Write the model that a client uses, or a node's; see `sofa_fl.export`."""
        return serving.export(
            self.run,
            file,
            node=_node(client, node),
            format=format,
            network=self.network,
            method=self.method,
        )

    def __repr__(self) -> str:
        about = self.summary
        mean, worst = (score(value, self.metric) for value in (self.mean, self.worst))
        scores = f"{score_name(self.metric)} {mean} mean, {worst} worst"
        size = number(len(about["client"]["clients"]), "client")
        return (
            f"<{about['title']} on {about['data']}: {size}, {number(about['rounds'], 'round')}, "
            f"{scores}; {self.run}>"
        )

    def _repr_html_(self) -> str:
        """The HTML for a notebook: the tree, the worst clients, and the path of the report."""
        record = read_round(self.run)
        ranked = sorted(_scores(record), key=lambda one: (one.score is None, one.score or 0.0))
        rows = "".join(
            f"<tr><td>{escape(one.name)}</td><td>{score(one.score, self.metric)}</td>"
            f"<td>{'' if one.cluster is None else one.cluster}</td></tr>"
            for one in ranked[:SHOWN]
        )
        few = (
            f"the {SHOWN} worst of {len(ranked)} clients" if len(ranked) > SHOWN else "all clients"
        )
        return (
            f"<div>{tree_svg(record)}<table><thead><tr><th>client</th>"
            f"<th>{score_name(self.metric)}</th><th>cluster</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
            f"{''.join(f'<p>{escape(note)}</p>' for note in self.notes)}"
            f"<p>{few}; everything is in <code>{escape(str(self.report))}</code></p></div>"
        )


def _node(client: str | int | None, node: str | int) -> str | int:
    return node if client is None else f"client:{client}"


def _scores(record: Round) -> tuple[ClientScore, ...]:
    """The scores of the clients in the tree of a round."""
    tree = record.tree
    return tuple(
        ClientScore(
            int(client),
            client_name(client, record.names),
            record.accuracy[client],
            tree.parent[client],
        )
        for client in tree.clients
    )


class Comparison(dict[str, list[Result]]):
    """The results of every method by name, one per seed."""

    def means(self) -> dict[str, Interval]:
        """The clients' mean score by method; ± is a 95% interval over seeds."""
        return {name: interval_of([result.mean for result in runs]) for name, runs in self.items()}

    def differences(self) -> dict[str, Interval]:
        """Every method's mean score minus the first one's, seed by seed, with a 95% interval."""
        names = {title: name for name, title in self._titles().items()}
        found = paired_differences([result.summary for runs in self.values() for result in runs])
        return {names[title]: gap for title, gap in found.items()}

    def __repr__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(f"{c:<{wide}}" for c, wide in zip(row, widths)) for row in rows]
        note = wrap(plus_note(self._titles().values()), 80)
        return "\n".join(line.rstrip() for line in [*lines, *note])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        note = plus_note(self._titles().values())
        below = f"<p>{escape(note)}</p>" if note else ""
        return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{below}"

    def _titles(self) -> dict[str, str]:
        """What every method is called in tables, by name."""
        return {name: str(runs[0].summary["title"]) for name, runs in self.items()}

    def _cells(self) -> list[list[str]]:
        """A header row, then one row per method."""
        titles = self._titles()
        first = next(iter(titles.values()), "")
        gaps = self.differences()
        rows = [["method", "mean of the clients", "worst client", f"against {first}"]]
        for name, runs in self.items():
            metric = runs[0].metric
            worst = interval_of([result.worst for result in runs])
            mean = self.means()[name]
            gap = interval_text(gaps[name], metric, signed=True) if name in gaps else ""
            rows.append(
                [titles[name], interval_text(mean, metric), interval_text(worst, metric), gap]
            )
        return rows


def interval_text(interval: Interval, metric: str, *, signed: bool = False) -> str:
    """`97.12 ± 0.20`, or only the mean if there is one value."""
    sign = "+" if signed and interval.mean > 0 else ""
    text = f"{sign}{table_score(interval.mean, metric)}"
    if interval.half_width is None:
        return text
    return f"{text} ± {table_score(interval.half_width, metric)}"
