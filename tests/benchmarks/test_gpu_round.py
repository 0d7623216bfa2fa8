"""A round is taken apart; without a GPU, with the same code."""

from __future__ import annotations

import sys
from pathlib import Path

import gpu_round
import pytest


def test_a_round_of_pfls_job_is_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "round.txt"
    wanted = f"--only fedavg --users 4 --cohort 2 --passed 1 --timed 2 --out {out}"
    monkeypatch.setattr(sys, "argv", ["gpu_round.py", *wanted.split()])
    gpu_round.main()
    text = out.read_text()
    assert "2 rounds)" in text
    assert "aten::bmm" in text, "what torch did"
    assert "sofa_fl/methods/clustered.py" in text, "what Python did"


def test_time_that_spans_share_counts_once() -> None:
    assert gpu_round.covered([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4
    assert gpu_round.covered([]) == 0


def test_paths_are_cut_from_lines() -> None:
    line = f"   12    0.1    0.2 {gpu_round.ROOT}/src/sofa_fl/guard.py:53(note)"
    assert gpu_round.shortened(line) == "   12    0.1    0.2 sofa_fl/guard.py:53(note)"
    line = "   12    0.1    0.2 /usr/lib/site-packages/torch/nn.py:1(call)"
    assert gpu_round.shortened(line) == "   12    0.1    0.2 torch/nn.py:1(call)"
