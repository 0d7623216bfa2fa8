"""The run folder: everything a run leaves behind, written so that a kill costs one round at most.

    config.yaml      complete, with every value resolved
    events.jsonl     one line per round
    checkpoints/     the newest states, by round
    frozen-*         what of a network is not trained, if anything (`frozen_file.py`)
    summary.json     written when the run has ended
    error.txt        the traceback of a bug that ended it, if it was one of several jobs
    .lock            held by the process that runs here

A round is recorded after its checkpoint is written. The checkpoint holds the round's line too: a
resumed run drops this line and all later ones, and writes them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sofa_fl.errors import RunError
from sofa_fl.experiment.storage.disk import (
    PARTIAL,
    SAFETENSORS_PARTIAL,
    DamagedError,
    append_bytes,
    discard,
    explained,
    locked,
    sync_folder,
    write_text,
)
from sofa_fl.experiment.storage.events import Event as Event
from sofa_fl.experiment.storage.events import from_line


def load_yaml(file: Path) -> Any:
    """The content of a YAML file, read by libyaml where there is one: ten times as fast."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text(encoding="utf-8"), loader)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that holds one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> RunFolder:
        """Make a new run folder; the folder must be empty or not exist."""
        folder = cls(path)
        with explained(f"cannot write the run folder {path}"):
            # A kill while the folder was made may have left the first file unfinished.
            left = {folder.lock_file, folder.error_file, *folder.unfinished()}
            if path.exists() and set(path.iterdir()) - left:
                raise RunError(
                    f"{path} is not empty; resume it with 'sofa-fl resume {path}' "
                    "or choose another folder with 'out'"
                )
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
        write_text(folder.config_file, yaml.safe_dump(config, sort_keys=False))
        return folder

    def config(self) -> Any:
        """What `config.yaml` says, not checked."""
        return load_yaml(self.config_file)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder."""
        if not (path / "config.yaml").is_file():
            raise RunError(f"{path} is not a run folder: it has no config.yaml")
        return cls(path)

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Keep other processes from running here; also delete what a killed one left unfinished.

        Raises:
            RunError: Another process runs here, and still does after `patience` seconds.
        """
        with explained(f"cannot write the run folder {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
        refusal = (
            f"another process is running in {self.path}; wait until it has ended, or choose "
            "another folder with 'out'"
        )
        with locked(self.lock_file, refusal, patience):
            for path in self.unfinished():
                discard(path)
            yield

    def unfinished(self) -> list[Path]:
        """Files of which a kill has left a part; those of a report may be under way."""
        kinds = [f"*{PARTIAL}"]
        if self.config_file.exists():  # else the folder may be someone else's
            kinds.append(SAFETENSORS_PARTIAL)
        folders = (self.path, self.checkpoints)
        found = [path for folder in folders for kind in kinds for path in folder.glob(kind)]
        return [path for path in found if not path.name.startswith("report")]

    def clear(self) -> None:
        """Delete everything but the configuration, so that the run begins."""
        with explained(f"cannot write the run folder {self.path}"):
            self.events_file.unlink(missing_ok=True)
            self.checkpoints.mkdir(exist_ok=True)
            self.forget_after(-1)
            sync_folder(self.path)

    @property
    def lock_file(self) -> Path:
        return self.path / ".lock"

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    @property
    def error_file(self) -> Path:
        return self.path / "error.txt"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint(self, round: int) -> Path:
        return self.checkpoints / f"round-{round:05d}.safetensors"

    def saved_rounds(self) -> list[int]:
        """The rounds that have a checkpoint, oldest first."""
        files = self.checkpoints.glob("round-*.safetensors")
        numbers = (file.stem.removeprefix("round-") for file in files)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def forget(self, keep: int) -> None:
        """Delete all checkpoints but the newest `keep`."""
        for round in self.saved_rounds()[:-keep]:
            self.checkpoint(round).unlink(missing_ok=True)

    def forget_after(self, round: int) -> None:
        """Delete the checkpoints of later rounds."""
        for later in self.saved_rounds():
            if later > round:
                self.checkpoint(later).unlink(missing_ok=True)

    def append(self, line: Event) -> None:
        """Append the line of an event, completely or not at all."""
        append_bytes(self.events_file, json.dumps(line).encode() + b"\n", alone=True)

    def cut(self, num: int) -> None:
        """Drop all lines but those of the first `num` rounds, which must all be there."""
        lines = self._lines()[:num]
        if len(lines) < num:
            raise DamagedError(f"{self.events_file} is shorter than its checkpoint says")
        for round, line in enumerate(lines):
            if _round_of(line) != round:
                raise DamagedError(f"{self.events_file} is damaged in line {round + 1}")
        if self.events_file.exists():
            with explained(f"cannot write {self.events_file}"):
                os.truncate(self.events_file, sum(map(len, lines)))

    def num_recorded(self) -> int:
        """The number of recorded rounds and the warm-up, without an incomplete last line."""
        return len(self._lines())

    def _lines(self) -> list[bytes]:
        recorded = self.events_file.read_bytes() if self.events_file.exists() else b""
        return [line + b"\n" for line in recorded.split(b"\n")[:-1]]

    def events(self) -> Iterator[Event]:
        """The events in order, without an incomplete last line."""
        if not self.events_file.exists():
            return
        event: Event = {}
        try:
            with self.events_file.open(encoding="utf-8") as file:
                for line in file:
                    if line.endswith("\n"):
                        yield (event := from_line(json.loads(line), event))
        except ValueError:
            raise RunError(f"{self.events_file} is damaged: one of its lines is not JSON") from None

    def summary(self) -> dict[str, Any] | None:
        """The summary of a run that has ended."""
        if not self.summary_file.exists():
            return None
        summary: dict[str, Any] = json.loads(self.summary_file.read_text(encoding="utf-8"))
        return summary


def _round_of(line: bytes) -> object:
    """The round that a line tells of; None if it is no such line."""
    try:
        return json.loads(line)["round"]
    except (ValueError, LookupError, TypeError):
        return None


def fresh_folder(name: str) -> Path:
    """`runs/sofa-mnist-0`, or `-2`, `-3`, … appended if that exists."""
    path, number = Path("runs") / name, 2
    while path.exists():
        path, number = Path("runs") / f"{name}-{number}", number + 1
    return path
