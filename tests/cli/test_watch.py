from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.cli.cases import Cli, assert_refused, process


@contextmanager
def started(*args: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is not left behind."""
    with process(*args) as running:
        try:
            yield running
        finally:
            running.kill()


def test_a_run_is_watched_while_it_goes_on(tiny: list[str], work_dir: Path) -> None:
    with started("run", *tiny, "--rounds", "100000", "--out", "x", "--quiet") as running:
        while not (work_dir / "x" / "config.yaml").exists():
            assert running.poll() is None
            time.sleep(0.01)
        with started("watch", "x", "--port", "0") as watching:
            assert watching.stderr is not None
            url = watching.stderr.readline().split()[0]
            assert url.startswith("http://localhost:")
            known, answers = 0, 0
            while answers < 4:  # it comes in pieces
                assert running.poll() is None
                with urlopen(f"{url}data?since={known}", timeout=60) as answer:
                    news = json.loads(answer.read())
                rounds = [record["round"] for record in news["history"]]
                assert (news["from"], news["summary"]) == (known, None)
                assert rounds == list(range(known, known + len(rounds)))
                known, answers = known + len(rounds), answers + bool(rounds)
            watching.send_signal(signal.SIGINT)
            out, err = watching.communicate()
            assert (watching.returncode, out) == (0, "")
            assert "Traceback" not in err


def test_what_cannot_be_watched(cli: Cli, finished: Path) -> None:
    assert_refused(cli("watch", "nowhere"), "nowhere is not a run folder")
    assert_refused(cli("watch", str(finished), "--port", "70000"), "0 to 65535")
    assert_refused(cli("watch", str(finished), "--host", "no.such.host.invalid"), "cannot serve at")
