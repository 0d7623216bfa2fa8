"""What the figures need of runs, kept in `figures.json`: runs themselves are not published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl.experiment.storage.run_folder import RunFolder
from sofa_fl.report.history import Round, make_round

FILE = "figures.json"
Kept = dict[str, Any]
# Of a round, what a picture of the tree is made from.
PICTURED = ("round", "rounds", "client", "accuracies", "path_loss", "tree", "pools")


def read_kept(out: Path) -> Kept:
    """What was kept; nothing where there is no file."""
    path = out / FILE
    if not path.exists():
        return {}
    try:
        kept: Kept = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError(f"{path} is damaged: it is not JSON; delete it and repeat") from None
    return kept


def keep(out: Path, pieces: Kept) -> Kept:
    """Add pieces to what is kept, in place of those of the same name."""
    kept = {**read_kept(out), **pieces}
    lines = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / FILE, "{\n" + ",\n".join(lines) + "\n}\n")
    return kept


def client_bars(seed: int, runs: Mapping[str, Path]) -> Kept:
    """Every client's accuracy at the end of runs, by what they are called."""
    accuracies = {name: _last(run)["accuracies"] for name, run in runs.items()}
    return {"clients": {"seed": seed, "accuracies": accuracies}}


def loss_curves(seed: int, runs: Mapping[str, Path]) -> Kept:
    """The local loss batch by batch, a list per round, by what the runs are called."""
    curves = {
        name: [event["local_loss"] for event in RunFolder.open(run).events()]
        for name, run in runs.items()
    }
    return {"losses": {"seed": seed, "curves": curves}}


def tree_of(run: Path, method: str, data: str, seed: int) -> Kept:
    """The last tree of a run."""
    event = {key: value for key, value in _last(run).items() if key in PICTURED}
    return {"tree": {"method": method, "data": data, "seed": seed, "event": event}}


def kept_round(tree: Mapping[str, Any]) -> Round:
    """A kept tree as the report takes it."""
    config = {"method": tree["method"], "data": {"name": tree["data"]}, "seed": tree["seed"]}
    return make_round(Path("."), config, None, {**tree["event"], "edits": []})


def _last(run: Path) -> Mapping[str, Any]:
    return list(RunFolder.open(run).events())[-1]
