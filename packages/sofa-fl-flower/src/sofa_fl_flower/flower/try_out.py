"""A federation on this computer in one command: Flower's own simulation, with its own processes.

What is sent, and who does what, is as between real machines; keys and TLS are not needed here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from sofa_fl.errors import ConfigError, RunError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl_flower.flower.new_app import new_app

SIMULATED = "num-supernodes = 10"  # in the template
SAMPLES = 400  # of MNIST, for every machine


def try_out(folder: Path, nodes: int, rounds: int) -> Path:
    """Write an app into a new folder and run it with several machines; return the run folder."""
    if find_spec("ray") is None:
        raise ConfigError(
            "trying a federation needs Flower's simulation: "
            "pip install 'sofa-fl-flower[simulation]'"
        )
    app = new_app(folder)
    change(app / ".flwr" / "config.toml", {SIMULATED: f"num-supernodes = {nodes}"})
    samples = f"{SAMPLES * nodes}\n  num_test: {SAMPLES * nodes // 4}"
    smaller = {
        "rounds: 20": f"rounds: {rounds}",
        "num_clients: 10": f"num_clients: {nodes}\n  num_train: {samples}",
        "name: cnn": "name: mlp",
    }
    change(next(app.glob("*/sofa.yaml")), smaller)
    environment = environment_of(app)
    try:
        done = subprocess.run(
            [_flwr(), "run", ".", "--stream", "--run-config", f"clients={nodes}"],
            cwd=app,
            env=environment,
            check=False,
        )
    finally:
        for process in started_with(environment["FLWR_HOME"]):  # Flower detaches its server
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
    run = app / "runs" / "first"
    if done.returncode or not (run / "summary.json").exists():
        raise RunError(f"the federation in {app} failed; its log is above")
    return run


def environment_of(app: Path) -> dict[str, str]:
    """What `env.sh` of an app sets."""
    return {
        **os.environ,
        # Flower starts programs of its own by name: those of this Python, activated or not.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "FLWR_HOME": str(app / ".flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": "local",
        "SOFA_FL_APP": str(app),
    }


def started_with(home: str) -> Iterator[int]:
    """The processes that Flower started for an app, by the home that they were given."""
    wanted = f"FLWR_HOME={home}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def change(file: Path, words: Mapping[str, str]) -> None:
    """Replace words of the template by others; each must be there."""
    text = file.read_text(encoding="utf-8")
    for old, new in words.items():
        assert old in text, f"{file} has no {old!r}"
        text = text.replace(old, new)
    write_text(file, text)


def _flwr() -> str:
    """Flower's command, of the same environment as this Python."""
    beside = Path(sys.executable).with_name("flwr")
    return str(beside) if beside.exists() else "flwr"
