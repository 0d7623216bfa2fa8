"""Count the files of `sofa_fl` that a run enters: how much a reader has to know to follow one.

    python benchmarks/files_entered.py [--list]

Runs a small `sofa-fl run` in this process and notes every file that has a function called: in the
whole run, in its last round, and in the method's part of that round. What merely happens at import
does not count.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import sofa_fl

SOURCE = Path(sofa_fl.__file__).parent
SMALL = (
    "warmup=2",
    "data.num_train=600",
    "data.num_test=200",
    "data.num_clients=8",
    "data.min_samples=5",
    "model.name=mlp",
    "model.hidden=8",
    "local.batches=2",
    "local.batch_size=20",
    "engine=sequential",
)


class Entered:
    """The files in which a function was called."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, kind: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if kind == "call" and file not in self.files and is_ours(frame) and not imports(frame):
            self.files.add(file)

    def take(self) -> set[str]:
        return {str(Path(file).relative_to(SOURCE)) for file in self.files}


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(str(SOURCE))


def imports(frame: FrameType) -> bool:
    """Whether this runs in the body of a module or class, or is called from one."""
    at: FrameType | None = frame
    while at is not None:
        if is_ours(at) and not at.f_code.co_flags & inspect.CO_OPTIMIZED:
            return True
        at = at.f_back
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    names = parser.parse_args().list
    for what, files in zip(("one run", "one round", "the method in it"), run(rounds=2)):
        print(f"{what}: {len(files)} files")
        if names:
            print(*(f"  {file}" for file in sorted(files)), sep="\n")


def run(rounds: int) -> tuple[set[str], set[str], set[str]]:
    """The files entered by a run, in its last round, and by the method in that round."""
    from sofa_fl.cli.main import app
    from sofa_fl.federation import Federation
    from sofa_fl.methods.sofa.method import Sofa

    entered, in_round, in_method = Entered(), Entered(), Entered()
    noting = [entered]
    at, play = Federation.at, Sofa.round

    def note(frame: FrameType, kind: str, argument: Any) -> None:
        for each in noting:
            each(frame, kind, argument)
        if frame.f_code.co_name == "close_round" and kind == "return" and in_round in noting:
            noting.remove(in_round)

    def begin(self: Federation, round: int) -> Federation:
        if round == rounds:
            noting.append(in_round)
        return at(self, round)

    def play_noted(self: Sofa, state: Any, fed: Federation) -> Any:
        if fed.round != rounds:
            return play(self, state, fed)
        noting.append(in_method)
        try:
            return play(self, state, fed)
        finally:
            noting.remove(in_method)

    with tempfile.TemporaryDirectory() as scratch:
        sets = [word for key in (*SMALL, f"rounds={rounds}") for word in ("--set", key)]
        arguments = ["run", *sets, "--out", str(Path(scratch) / "run"), "--quiet"]
        with patch.object(Federation, "at", begin), patch.object(Sofa, "round", play_noted):
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                app(arguments, standalone_mode=False)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return entered.take(), in_round.take(), in_method.take()


if __name__ == "__main__":
    main()
