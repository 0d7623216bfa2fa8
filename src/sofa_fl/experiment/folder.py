"""The run folder: all that is left of a run, written so that a kill loses two rounds at most.

    config.yaml      complete and resolved
    events.jsonl     one line per round
    checkpoints/     the newest states, by round
    summary.json     once the run has ended

A checkpoint knows how long `events.jsonl` was when it was written: a resumed run cuts off what
came later and writes it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sofa_fl.errors import RunError

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that holds one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> RunFolder:
        """Make a new run folder; one that holds anything is refused."""
        folder = cls(path)
        try:
            # A kill while the folder was being made may have left the first file unfinished.
            unfinished = {folder.config_file.with_name("config.yaml.partial")}
            if path.exists() and set(path.iterdir()) - unfinished:
                raise RunError(
                    f"{path} is not empty; resume it with 'sofa-fl resume {path}' "
                    "or choose another folder with 'out'"
                )
            path.mkdir(parents=True, exist_ok=True)
            write_config(folder.config_file, config)
        except OSError as error:
            raise RunError(f"cannot write the run folder {path}: {error.strerror}") from None
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not (path / "config.yaml").is_file():
            raise RunError(f"{path} is not a run folder: it has no config.yaml")
        return cls(path)

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
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoint(self, round: int) -> Path:
        return self.checkpoints / f"round-{round:05d}.safetensors"

    def saved_rounds(self) -> list[int]:
        """The rounds of which there is a checkpoint, oldest first."""
        files = self.checkpoints.glob("round-*.safetensors")
        numbers = (file.stem.removeprefix("round-") for file in files)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def forget(self, keep: int) -> None:
        """Delete all checkpoints but the newest `keep`."""
        for round in self.saved_rounds()[:-keep]:
            self.checkpoint(round).unlink(missing_ok=True)

    def append(self, event: Event) -> int:
        """Write one event; return the length of the file after it."""
        try:
            with self.events_file.open("ab") as file:
                file.write(json.dumps(event).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                return file.tell()
        except OSError as error:
            raise RunError(f"cannot write {self.events_file}: {error.strerror}") from None

    def cut(self, length: int) -> None:
        """Drop the events after `length` bytes."""
        if not self.events_file.exists() or self.events_file.stat().st_size < length:
            raise RunError(f"{self.events_file} is shorter than its checkpoint says; cannot resume")
        os.truncate(self.events_file, length)

    def events(self) -> Iterator[Event]:
        """The events in order; a torn last line is passed over."""
        if not self.events_file.exists():
            return
        try:
            with self.events_file.open(encoding="utf-8") as file:
                for line in file:
                    if line.endswith("\n"):
                        yield json.loads(line)
        except ValueError:
            raise RunError(f"{self.events_file} is damaged: a line of it is not JSON") from None

    def summary(self) -> dict[str, Any] | None:
        """The summary of a run that has ended."""
        if not self.summary_file.exists():
            return None
        summary: dict[str, Any] = json.loads(self.summary_file.read_text(encoding="utf-8"))
        return summary


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_config(path: Path, config: dict[str, Any]) -> None:
    write_text(path, yaml.safe_dump(config, sort_keys=False))
