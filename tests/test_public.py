"""The public names: exported on purpose, each one there, and cheap to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sofa_fl

PUBLIC = [
    "ApflConfig",
    "Arrays",
    "Assigned",
    "CflConfig",
    "ClientData",
    "ClientScore",
    "Comparison",
    "Concept",
    "Config",
    "CsvConfig",
    "DataConfig",
    "DittoConfig",
    "DmacConfig",
    "Exported",
    "FaultsConfig",
    "FedAlaConfig",
    "FedDriftConfig",
    "FedOptConfig",
    "FedProxConfig",
    "FedRepConfig",
    "FedRodConfig",
    "FederatedData",
    "Federation",
    "FlHcConfig",
    "GuardConfig",
    "HierFavgConfig",
    "HypClusterConfig",
    "LocalConfig",
    "MeanPooled",
    "Method",
    "ModelConfig",
    "NodeId",
    "Notes",
    "OracleConfig",
    "Phase",
    "Preprocessing",
    "Result",
    "Round",
    "RulesConfig",
    "ScenarioConfig",
    "ShapeConfig",
    "SharingConfig",
    "Sofa",
    "SofaConfig",
    "SofaError",
    "Space",
    "Stage",
    "Tree",
    "View",
    "answered",
    "as_vector",
    "assign",
    "compare",
    "deal",
    "dmac",
    "export",
    "federate",
    "flat_tree",
    "from_arrays",
    "from_columns",
    "from_csv",
    "from_dataset",
    "from_folder",
    "from_partitions",
    "from_peft",
    "load_config",
    "predict",
    "preset",
    "read_csv",
    "register",
    "resume",
    "run",
    "run_or_resume",
    "split",
]


def test_the_public_names_are_these() -> None:
    assert sorted(sofa_fl.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sofa_fl, name) is not None
    assert name in dir(sofa_fl)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'federated'"):
        sofa_fl.federated  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, sofa_fl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
