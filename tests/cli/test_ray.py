"""Every command of docs/ray.md, as it stands there but for addresses and sizes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from process_tree import descendants
from safetensors.numpy import load_file

from tests.cli.cases import Cli, process
from tests.engine.test_workers import is_running, wait_until

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "ray.md"
INSTALL = "pip install 'sofa-fl[ray]'"
RUN = "sofa-fl run --set engine=ray --out runs/laptop"
RESUME = "sofa-fl resume runs/laptop"
TOKEN = "ray get-auth-token --generate"
HEAD = (
    "RAY_AUTH_MODE=token ray start --head --port 6379 --block --disable-usage-stats "
    "--include-dashboard false --object-store-memory 500000000"
)
NODE = (
    "RAY_AUTH_MODE=token ray start --address 10.0.0.1:6379 --block --object-store-memory 500000000"
)
JOIN = (
    "RAY_AUTH_MODE=token RAY_ADDRESS=10.0.0.1:6379 sofa-fl run --set engine=ray --out runs/cluster"
)
SMALL = ["--num-cpus", "1"]


def test_the_page_has_no_other_commands() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n  ", "").splitlines()]
    assert commands == [INSTALL, RUN, RESUME, TOKEN, HEAD, NODE, JOIN]


def taken_apart(command: str, port: str = "") -> tuple[dict[str, str], list[str]]:
    """Variables, and the words after the name of the program; with a port that is free."""
    command = command.replace("10.0.0.1:6379", f"127.0.0.1:{port}").replace("6379", port)
    words = shlex.split(command)
    variables = dict(word.split("=") for word in words if word.startswith("RAY_"))
    return variables, words[len(variables) + 1 :]


def test_the_extra_has_what_it_takes() -> None:
    """Everything is there already, so nothing is asked of the network."""
    pip = [sys.executable, "-m", *shlex.split(INSTALL), "--dry-run", "--no-index", "--quiet"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "would install" not in done.stdout.lower()


def test_ctrl_c_leaves_nothing_behind_and_resume_gives_the_same_bits(
    tiny: list[str], cli: Cli, work_dir: Path
) -> None:
    rounds = ["--rounds", "12"]
    running = process(
        "run", *tiny, *taken_apart(RUN)[1][1:], *rounds, "--json", start_new_session=True
    )
    events = work_dir / "runs" / "laptop" / "events.jsonl"
    wait_until(lambda: events.exists() and events.read_bytes().count(b"\n") >= 2, "two rounds")
    below = descendants(running.pid)
    assert len(below) > 4, "Ray has started several processes"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert (running.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "interrupted; continue with 'sofa-fl resume runs/laptop'"
    assert [line.split(",")[0] for line in err.splitlines()[:2]] == ["warm-up", "warm-up done"]
    assert not [pid for pid in below if is_running(pid)]

    resumed = process(*taken_apart(RESUME)[1], "--json")
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert json.loads(out)["engine"] == "ray"
    assert_like_sequential(work_dir / "runs" / "laptop", tiny, cli, rounds)


def assert_like_sequential(run: Path, tiny: list[str], cli: Cli, options: list[str]) -> None:
    """The same events but for the time, and the same last checkpoint."""
    assert cli("run", *tiny, *options, "--out", "plain", "--quiet").exit_code == 0
    assert events_of(run) == events_of(Path("plain"))
    mine, same = (sorted(f.glob("checkpoints/*"))[-1] for f in (run, Path("plain")))
    tensors, others = load_file(mine), load_file(same)
    assert tensors.keys() == others.keys()
    assert all(tensors[key].tobytes() == others[key].tobytes() for key in tensors)


def events_of(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


RAY = Path(sys.executable).with_name("ray")


@contextmanager
def started(command: str, port: str, home: Path) -> Iterator[None]:
    """A node of a cluster, until it is told to end: then all of it has ended."""
    variables, words = taken_apart(command, port)
    with subprocess.Popen(
        [RAY, *words, *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables, "HOME": str(home)},
    ) as node:
        try:
            assert node.stdout is not None
            said = ""
            for line in node.stdout:
                said += line
                if "Ray runtime started" in line:
                    break
            assert "Ray runtime started" in said, said
            yield
            assert node.poll() is None, "the node has ended of itself"
        finally:
            below = descendants(node.pid)
            node.terminate()
            node.communicate()
        wait_until(lambda: not any(map(is_running, below)), "a node to end")


def test_a_cluster_that_is_there_serves_and_stays(
    tiny: list[str], cli: Cli, work_dir: Path
) -> None:
    """The token is in a home of its own: nobody else's is read or written."""
    port, home = free_port(), work_dir / "home"
    home.mkdir()
    own = {**os.environ, "HOME": str(home)}
    subprocess.run([RAY, *taken_apart(TOKEN)[1]], env=own, check=True, capture_output=True)
    with started(HEAD, port, home), started(NODE, port, home):
        variables, (_, *words) = taken_apart(JOIN, port)
        variables["HOME"] = str(home)
        running = process("run", *tiny, *words, "--json", env=variables)
        out, err = running.communicate()
        assert running.returncode == 0, err
        assert json.loads(out)["engine"] == "ray"
    assert_like_sequential(work_dir / "runs" / "cluster", tiny, cli, [])
