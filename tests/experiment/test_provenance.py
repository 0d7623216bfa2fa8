"""A summary says what made it: version, code, configuration, data and precision."""

from __future__ import annotations

from pathlib import Path

import sofa_fl
from sofa_fl.api.runs import run
from tests.experiment.cases import own_data, tiny


def test_the_same_experiment_has_the_same_provenance(tmp_path: Path) -> None:
    """Wherever it lies; other settings or other data have another one."""
    first = run(tiny(tmp_path / "first"), data=own_data()).summary["provenance"]
    assert first["version"] == sofa_fl.__version__
    assert first["precision"] == "float32"
    assert run(tiny(tmp_path / "same"), data=own_data()).summary["provenance"] == first
    other = run(tiny(tmp_path / "other", seed=1), data=own_data()).summary["provenance"]
    assert other["config"] != first["config"]
    data = run(tiny(tmp_path / "data"), data=own_data(1)).summary["provenance"]
    assert data["data"] != first["data"]
    assert (data["config"], data["code"]) == (first["config"], first["code"])
