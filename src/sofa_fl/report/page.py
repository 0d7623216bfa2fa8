"""The report: what a run folder says, as one HTML file with its style and scripts, for use offline.

What a run folder says is data and never becomes markup: it is JSON in which no `<` is left, the
scripts write it as text, and the browser is told to run these scripts and no others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from math import ceil, isfinite
from pathlib import Path
from typing import Any

import yaml

from sofa_fl.errors import RunError, SofaError, printable
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.events import Event, edit_from_json, from_line, metric_of
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import (
    Plain,
    Positions,
    align,
    frame_of,
    level_losses,
    names_in,
    short,
    tree_in,
)
from sofa_fl.report.words import Names, data_title, method_title, number, plus_note, remarks, tell
from sofa_fl.topology.tree import NodeId, Tree

LEFT_FILE = "left.json"  # what a server wrote of the answers that it got
ROOM = 120_000  # clients times rounds that are drawn one by one; above, only some rounds are drawn
PASSED_ON = ("data", "objective", "metric", "groups", "absent", "set_aside", "quarantined")
BAD = (ValueError, KeyError, TypeError, AttributeError, IndexError, yaml.YAMLError, SofaError)
REPORT = "report.html"
SCRIPTS = (
    "dom", "scores", "colour", "model", "stages", "tree_layout", "tree_view", "chart", "bars",
    "edits_view", "clients_view", "levels_view", "map_view", "sharing_view", "plain_views",
    "metrics_view", "player", "live", "main", "compare", "compare_clients", "start",
)  # fmt: skip


class RunReader:
    """What a run folder says so far; `read_on` looks for more."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder.open(path)
        self.history: list[Plain] = []
        self._length = 0  # of the events read
        self._tree: Tree | None = None
        self._positions: Positions = {}
        self._names: dict[NodeId, str] = {}
        self._event: Event = {}

    def read_on(self) -> list[Plain]:
        """All rounds there are; a run that was resumed may have fewer than before."""
        try:
            if not self._take_new():
                self._forget()
                self._take_new()
        except OSError as error:
            raise RunError(f"cannot read {self.folder.events_file}: {error.strerror}") from None
        except BAD:
            raise RunError(
                f"{self.folder.events_file} is damaged: it is not a record of rounds"
            ) from None
        return self.history

    def about(self) -> Plain:
        """What of a run is no round: its name, its configuration, its end."""
        path = self.folder.path
        try:
            config = self.folder.config()
            about = {
                "name": path.resolve().name,
                "title": method_title(config),
                "plus": plus_note([method_title(config)]),
                "method": str(config["method"]),
                "data": data_title(config),
                "seed": int(config["seed"]),
                "rounds": int(config["rounds"]),
                "config": _plain(config),
                "summary": _plain(self.folder.summary()),
                "left": self._left(),
            }
        except OSError as error:
            raise RunError(f"cannot read the run folder {path}: {error.strerror}") from None
        except BAD:
            raise RunError(
                f"{path} is damaged: its config.yaml or summary.json cannot be read"
            ) from None
        return about

    def _left(self) -> Plain:
        """What has left each site of a deployment; nothing elsewhere."""
        file = self.folder.path / LEFT_FILE
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {str(client): dict(_plain(counts)) for client, counts in dict(found).items()}

    def _take_new(self) -> bool:
        """Read what was appended; False if what was read before is no longer there."""
        file = self.folder.events_file
        size = file.stat().st_size if file.exists() else 0
        if size < self._length:
            return False
        if size == self._length:
            return True
        with file.open("rb") as stream:
            stream.seek(self._length)
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # it is being written
                try:
                    event = from_line(json.loads(line), self._event)
                except ValueError:
                    if self.history:
                        return False  # the file was cut and has grown again
                    raise
                if event["event"] == "round":
                    if self.history and event["round"] != self.history[-1]["round"] + 1:
                        return False
                    self._add(event)
                self._event = event
                self._length += len(line)
        return True

    def _forget(self) -> None:
        self.history, self._length, self._tree, self._positions = [], 0, None, {}
        self._names, self._event = {}, {}

    def _add(self, event: Event) -> None:
        tree = tree_in(event)
        positions = {int(client): (x, y) for client, (x, y) in event.get("positions", {}).items()}
        self._positions = align(positions, self._positions)
        new = {client: n for client, n in names_in(event).items() if client not in self._names}
        self._names |= new
        record = summary_of_round(event, tree, self._tree, self._names)
        if new:  # once is enough
            record["names"] = {str(client): name for client, name in new.items()}
        if is_drawn(event):
            record["frame"] = frame_of(event, tree, self._positions)
        self._tree = tree
        self.history.append(record)


def is_drawn(event: Event) -> bool:
    """Whether a round is one of those that are drawn: all of them, unless there are very many."""
    round, rounds = event["round"], event["rounds"]
    step = ceil(len(event["accuracies"]) * (rounds + 1) / ROOM)
    return bool(round % step == 0 or round == rounds)


def summary_of_round(event: Event, tree: Tree, before: Tree | None, names: Names) -> Plain:
    """What is known of a round as a whole."""
    disclosed = [x for x in event.get("disclosed", ()) if x is not None]
    record: Plain = {
        "round": event["round"],
        "client": {key: short(value, 5) for key, value in event["client"].items()},
        "num_clients": len(tree.clients),
        "num_clusters": len(tree.clusters),
        "depth": tree.depth,
        "edits": edits_in_words(event["edits"], before, names),
        "levels": level_losses(tree, event.get("path_loss", {})),
        "seconds": event.get("seconds"),
        "up": event.get("bytes_up"),
        "down": event.get("bytes_down"),
        "trained": event.get("samples_trained"),
    }
    if disclosed:
        mean = sum(disclosed) / len(disclosed)
        record["disclosed"] = {"mean": short(mean, 4), "max": short(max(disclosed), 4)}
    if curve := [x for x in event.get("local_loss", ()) if x is not None]:
        record["loss"] = short(sum(curve) / len(curve), 4)
    if own := event.get("metrics"):
        record["metrics"] = {name: _range(found) for name, found in own.items()}
    if "evaluated" in event:
        record["evaluated"] = event["evaluated"]
    return record | {key: _plain(event[key]) for key in PASSED_ON if event.get(key)}


def _range(found: Mapping[str, float | None]) -> Plain:
    """Of an own metric, which may be of any size, what a chart needs."""
    kept = {key: found[key] for key in ("mean", "min", "max")}
    return {k: None if v is None or not isfinite(v) else float(f"{v:.6g}") for k, v in kept.items()}


def edits_in_words(
    edits: Sequence[Mapping[str, Any]], before: Tree | None, names: Names
) -> list[Plain]:
    """The edits of a round, each with a sentence that tells it."""
    if not edits:
        return []
    try:
        assert before is not None
        sentences = tell([edit_from_json(edit) for edit in edits], before, names)
    except (*BAD, AssertionError):  # written by another version: the page shows it all the same
        sentences = [_bare(edit) for edit in edits]
    return [{**edit, "told": sentence} for edit, sentence in zip(edits, sentences)]


def _bare(edit: Mapping[str, Any]) -> str:
    values = ", ".join(f"{key} {value}" for key, value in edit.items() if key != "edit")
    return f"{edit.get('edit')}: {values}"


def _plain(value: Any) -> Any:
    """A value as JSON has it: no NaN, keys that are text, and what is neither as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def read_run(path: Path) -> Plain:
    """A run folder as one object; the run may be going on."""
    reader = RunReader(path)
    history, about = reader.read_on(), reader.about()
    said = remarks(
        history,
        method=about["method"],
        depth=history[-1]["depth"] if history else 0,
        metric=metric_of(history[-1]) if history else "",
    )
    notes = (about["summary"] or {}).get("notes", [])
    return {**about, "history": history, "remarks": [*notes, *said]}


def write_report(paths: Sequence[Path], file: Path | None = None) -> Path:
    """Write the page of one run into its folder, or that of several, which needs a `file`."""
    if file is None:
        file = paths[0] / REPORT
    write_text(file, page([read_run(path) for path in paths]))
    return file


def write_run_report(run: Path) -> None:
    """Write the page of a run that has ended into its folder."""
    write_report([run])


def page(runs: Sequence[Plain], *, live: bool = False) -> str:
    """The page of one run, or of several beside each other; `live` ones ask for more."""
    script = scripts()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "title": escape(printable(_title(runs))),
        "digest": f"sha256-{digest}",
        "style": asset("page.css"),
        "script": script,
        "data": embedded({"runs": list(runs), "live": live}),
    }
    # In one pass: what was put in is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], asset("page.html"))


def embedded(value: Plain) -> str:
    """JSON that can stand in a script element: nothing in it begins a tag or ends a line."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def scripts() -> str:
    """All scripts in one, in a scope of their own."""
    parts = [asset(f"{name}.js") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def asset(name: str) -> str:
    return (files("sofa_fl.report") / "assets" / name).read_text(encoding="utf-8")


def _title(runs: Sequence[Plain]) -> str:
    if len(runs) > 1:
        return f"{number(len(runs), 'run')} compared"
    return f"{runs[0]['title']} on {runs[0]['data']}: {runs[0]['name']}"
