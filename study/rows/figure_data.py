"""What figures need from runs, in `figures.json`: the runs themselves are not published."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import Round, make_round

FILE = "figures.json"
FigureData = dict[str, Any]
# The parts of a round's event that a picture of the tree is made from.
PICTURED = ("round", "rounds", "client", "accuracies", "path_loss", "tree", "pools")


@dataclass(frozen=True, slots=True)
class Pieces:
    """A figure that needs the same piece of data from several runs with one seed.

    Attributes:
        figure: Its name in `figures.json`.
        part: The key there that holds the pieces, by the label of the run.
        read: Reads the piece from a run folder.
    """

    figure: str
    part: str
    read: Callable[[Path], Any]

    def seed_of(self, data: Mapping[str, Any], first: int) -> int:
        """The seed of the figure that is there, else `first`."""
        return int(data[self.figure]["seed"]) if self.figure in data else first

    def labels(self, data: Mapping[str, Any], seed: int) -> set[str]:
        """The runs with this seed whose pieces are there."""
        figure = data.get(self.figure)
        return set(figure[self.part]) if figure and figure["seed"] == seed else set()

    def add(self, data: Mapping[str, Any], seed: int, runs: Mapping[str, Path]) -> FigureData:
        """The figure with the pieces of these runs; those of another seed are dropped."""
        is_same = self.figure in data and data[self.figure]["seed"] == seed
        before = data[self.figure][self.part] if is_same else {}
        new = {label: self.read(folder) for label, folder in runs.items()}
        return {self.figure: {"seed": seed, self.part: {**before, **new}}}


def read_figures(out: Path) -> FigureData:
    """The content of `figures.json`; nothing where there is no file."""
    path = out / FILE
    if not path.exists():
        return {}
    try:
        data: FigureData = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError(f"{path} is damaged: it is not JSON; delete it and repeat") from None
    return data


def write_figures(out: Path, new: FigureData) -> FigureData:
    """Add figures to `figures.json`, replacing those of the same name."""
    data = {**read_figures(out), **new}
    lines = (f"{json.dumps(name)}: {json.dumps(data[name])}" for name in sorted(data))
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / FILE, "{\n" + ",\n".join(lines) + "\n}\n")
    return data


def tree_of(run: Path, method: str, data: str, seed: int) -> FigureData:
    """The last tree of a run."""
    event = {key: value for key, value in _last_event(run).items() if key in PICTURED}
    return {"tree": {"method": method, "data": data, "seed": seed, "event": event}}


def languages_of(run: Path) -> FigureData:
    """The last tree of the languages, and how well it agrees with the families."""
    folder, event = RunFolder.open(run), _last_event(run)
    summary = folder.summary() or {}
    kept = {key: event[key] for key in ("tree", "names")}
    return {
        "languages": {
            **kept,
            "seed": summary["seed"],
            "purity": summary["groups"]["purity"][0],
        }
    }


def round_of(tree: Mapping[str, Any]) -> Round:
    """A tree from `figures.json` in the form that the report draws."""
    config = {"method": tree["method"], "data": {"name": tree["data"]}, "seed": tree["seed"]}
    return make_round(Path("."), config, None, {**tree["event"], "edits": []})


def _accuracies(run: Path) -> list[float | None]:
    """Every client's accuracy at the end of a run."""
    accuracies: list[float | None] = _last_event(run)["accuracies"]
    return accuracies


def _losses(run: Path) -> list[list[float]]:
    """The local loss batch by batch, a list per round; the first is the warm-up."""
    return [event["local_loss"] for event in RunFolder.open(run).events()]


def _last_event(run: Path) -> Mapping[str, Any]:
    return list(RunFolder.open(run).events())[-1]


CLIENTS = Pieces("clients", "accuracies", _accuracies)
LOSSES = Pieces("losses", "curves", _losses)
