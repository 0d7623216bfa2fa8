"""SOFA-FL: self-organizing hierarchical federated learning.

The paper's experiment in Python:

    import sofa_fl

    result = sofa_fl.run(sofa_fl.Config(seed=0, rounds=20))
    print(result.summary["client"]["mean"], result.tree.depth)

Names are loaded when they are first used, so `import sofa_fl` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sofa_fl.api.result import ClientScore as ClientScore
    from sofa_fl.api.result import Comparison as Comparison
    from sofa_fl.api.result import Result as Result
    from sofa_fl.api.runs import compare as compare
    from sofa_fl.api.runs import resume as resume
    from sofa_fl.api.runs import run as run
    from sofa_fl.api.runs import run_or_resume as run_or_resume
    from sofa_fl.data.concepts import Concept as Concept
    from sofa_fl.data.concepts import Phase as Phase
    from sofa_fl.data.config import DataConfig as DataConfig
    from sofa_fl.data.csv_files import CsvConfig as CsvConfig
    from sofa_fl.data.csv_files import read_csv as read_csv
    from sofa_fl.data.dealing import deal as deal
    from sofa_fl.data.dealing import split as split
    from sofa_fl.data.federate import federate as federate
    from sofa_fl.data.federated_data import Arrays as Arrays
    from sofa_fl.data.federated_data import ClientData as ClientData
    from sofa_fl.data.federated_data import FederatedData as FederatedData
    from sofa_fl.data.federated_data import Stage as Stage
    from sofa_fl.data.own import from_arrays as from_arrays
    from sofa_fl.data.own import from_dataset as from_dataset
    from sofa_fl.data.pictures import from_folder as from_folder
    from sofa_fl.data.preprocess import Preprocessing as Preprocessing
    from sofa_fl.data.scenarios import ScenarioConfig as ScenarioConfig
    from sofa_fl.data.tables import from_columns as from_columns
    from sofa_fl.data.tables import from_csv as from_csv
    from sofa_fl.data.tables import from_partitions as from_partitions
    from sofa_fl.engine.base import answered as answered
    from sofa_fl.engine.config import FaultsConfig as FaultsConfig
    from sofa_fl.engine.config import LocalConfig as LocalConfig
    from sofa_fl.errors import SofaError as SofaError
    from sofa_fl.experiment.run.config import Config as Config
    from sofa_fl.experiment.run.config import load_config as load_config
    from sofa_fl.experiment.run.config import preset as preset
    from sofa_fl.experiment.serving.model_files import Exported as Exported
    from sofa_fl.experiment.serving.model_files import export as export
    from sofa_fl.experiment.serving.model_files import predict as predict
    from sofa_fl.experiment.serving.newcomers import Assigned as Assigned
    from sofa_fl.experiment.serving.newcomers import assign as assign
    from sofa_fl.federation import Federation as Federation
    from sofa_fl.guard_config import GuardConfig as GuardConfig
    from sofa_fl.methods.config import ApflConfig as ApflConfig
    from sofa_fl.methods.config import CflConfig as CflConfig
    from sofa_fl.methods.config import DittoConfig as DittoConfig
    from sofa_fl.methods.config import FedAlaConfig as FedAlaConfig
    from sofa_fl.methods.config import FedDriftConfig as FedDriftConfig
    from sofa_fl.methods.config import FedOptConfig as FedOptConfig
    from sofa_fl.methods.config import FedProxConfig as FedProxConfig
    from sofa_fl.methods.config import FedRepConfig as FedRepConfig
    from sofa_fl.methods.config import FedRodConfig as FedRodConfig
    from sofa_fl.methods.config import FlHcConfig as FlHcConfig
    from sofa_fl.methods.config import HierFavgConfig as HierFavgConfig
    from sofa_fl.methods.config import HypClusterConfig as HypClusterConfig
    from sofa_fl.methods.config import OracleConfig as OracleConfig
    from sofa_fl.methods.method import Method as Method
    from sofa_fl.methods.method import Notes as Notes
    from sofa_fl.methods.method import View as View
    from sofa_fl.methods.registry import register as register
    from sofa_fl.methods.sofa.config import RulesConfig as RulesConfig
    from sofa_fl.methods.sofa.config import SofaConfig as SofaConfig
    from sofa_fl.methods.sofa.method import Sofa as Sofa
    from sofa_fl.models.config import ModelConfig as ModelConfig
    from sofa_fl.models.flat import as_vector as as_vector
    from sofa_fl.models.pretrained import MeanPooled as MeanPooled
    from sofa_fl.models.pretrained import from_peft as from_peft
    from sofa_fl.report.history import Round as Round
    from sofa_fl.sharing import SharingConfig as SharingConfig
    from sofa_fl.topology.config import DmacConfig as DmacConfig
    from sofa_fl.topology.config import ShapeConfig as ShapeConfig
    from sofa_fl.topology.dmac import dmac as dmac
    from sofa_fl.topology.space import Space as Space
    from sofa_fl.topology.tree import NodeId as NodeId
    from sofa_fl.topology.tree import Tree as Tree
    from sofa_fl.topology.tree import flat_tree as flat_tree

__version__ = "0.1.0"

_NAMES = {  # of every module, those that are public
    "api.result": "ClientScore Comparison Result",
    "api.runs": "compare resume run run_or_resume",
    "data.concepts": "Concept Phase",
    "data.config": "DataConfig",
    "data.csv_files": "CsvConfig read_csv",
    "data.dealing": "deal split",
    "data.federate": "federate",
    "data.federated_data": "Arrays ClientData FederatedData Stage",
    "data.own": "from_arrays from_dataset",
    "data.pictures": "from_folder",
    "data.preprocess": "Preprocessing",
    "data.scenarios": "ScenarioConfig",
    "data.tables": "from_columns from_csv from_partitions",
    "engine.base": "answered",
    "engine.config": "FaultsConfig LocalConfig",
    "errors": "SofaError",
    "experiment.run.config": "Config load_config preset",
    "experiment.serving.model_files": "Exported export predict",
    "experiment.serving.newcomers": "Assigned assign",
    "federation": "Federation",
    "guard_config": "GuardConfig",
    "methods.config": "ApflConfig CflConfig DittoConfig FedAlaConfig FedDriftConfig FedOptConfig "
    "FedProxConfig FedRepConfig FedRodConfig FlHcConfig HierFavgConfig HypClusterConfig "
    "OracleConfig",
    "methods.method": "Method Notes View",
    "methods.registry": "register",
    "methods.sofa.config": "RulesConfig SofaConfig",
    "methods.sofa.method": "Sofa",
    "models.config": "ModelConfig",
    "models.flat": "as_vector",
    "models.pretrained": "MeanPooled from_peft",
    "report.history": "Round",
    "sharing": "SharingConfig",
    "topology.config": "DmacConfig ShapeConfig",
    "topology.dmac": "dmac",
    "topology.space": "Space",
    "topology.tree": "NodeId Tree flat_tree",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
