"""The benchmark of many clients finds all that it measures."""

from __future__ import annotations

import sys
from pathlib import Path

import many_clients
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("method", ["sofa", "fedavg"])
def test_a_part_of_the_clients_is_measured(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = "--clients 40 --ask 8 --samples 8 --rounds 2 --model mlp --engine sequential"
    monkeypatch.setattr(sys, "argv", ["many_clients.py", *wanted.split(), "--method", method])
    many_clients.main()
    told = capsys.readouterr().out
    assert f"8 a round, {method}" in told
    assert told.count("| round ") == 2
    assert not list(tmp_path.iterdir()), "its run is gone"
