"""The part of the configuration that says which data there are and who owns what."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from sofa_fl.data.csv_files import CsvConfig
from sofa_fl.data.scenarios import ScenarioConfig

PartitionName = Literal["dirichlet", "iid", "shards", "groups", "odd", "sites", "natural", "own"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """The data, and how samples are assigned to clients.

    Attributes:
        name: `mnist`, `fashion-mnist`, `languages`, `heart`, `weather`, the name of a folder of idx
            files, or `csv` for CSV files in `dir`. In `languages`, `heart` and `weather`, clients
            own their samples, so none are assigned; if `model` has its defaults, a network that
            suits the data replaces it.
        dir: Folder to search first.
        num_clients: Number of clients.
        partition: How training and test samples are assigned to clients. `groups`, `odd` and
            `sites` assign them as `iid` does, and then show different things to different groups of
            clients. `groups`: images are rotated by quarter turns, and labels are swapped within a
            rotation. `odd`: the last client renames every class. `sites`: images are rotated by 45°
            per region, and by another 15° per site within it; labels keep their meaning. A run
            records `natural` for data whose clients own their samples, and `own` for data that
            Python code passed already assigned to clients.
        alpha: Concentration of `dirichlet`; with a smaller value, clients differ more.
        min_samples: Minimum number of training samples per client, before the holdout.
        shards_per_client: Shards of label-sorted samples per client, for `shards`.
        num_rotations: Number of rotations of the images, for `groups` and scenarios.
        num_swaps: Number of label variants within each rotation, for `groups` and scenarios.
        num_regions: Number of regions, for `sites`.
        num_sites: Number of sites within each region, for `sites`.
        samples: Maximum number of training samples per client, before the holdout; drawn by the
            seed.
        holdout: Fraction of each client's training samples on which losses are compared; at least
            one sample if there are two or more, none if 0.
        num_train: Use only this many training samples, drawn by the seed.
        num_test: Use only this many test samples, drawn by the seed.
        score_on: `validation` sets a sixth of the training samples aside and scores on them instead
            of the test samples; use it to tune settings.
        scenario: How the data change during a run; with a scenario, groups are formed with any
            partition.
        csv: How the files of `name: csv` are read.
        standardize_targets: In a regression, train on targets of mean 0 and standard deviation 1,
            by the training samples of all clients. Predictions, exported models, RMSE and own
            metrics have the units that the targets came in.
    """

    name: str = "mnist"
    dir: str | None = None
    num_clients: Annotated[int, Ge(1)] = 20
    partition: PartitionName = "dirichlet"
    alpha: Annotated[float, Gt(0)] = 1.0
    min_samples: Annotated[int, Ge(1)] = 10
    shards_per_client: Annotated[int, Ge(1)] = 2
    num_rotations: Annotated[int, Ge(1)] = 4
    num_swaps: Annotated[int, Ge(1)] = 2
    num_regions: Annotated[int, Ge(1)] = 4
    num_sites: Annotated[int, Ge(1)] = 2
    samples: Annotated[int, Ge(1)] | None = None
    holdout: Annotated[float, Ge(0), Lt(1)] = 0.05
    num_train: Annotated[int, Ge(1)] | None = None
    num_test: Annotated[int, Ge(1)] | None = None
    score_on: Literal["test", "validation"] = "test"
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    csv: CsvConfig = field(default_factory=CsvConfig)
    standardize_targets: bool = True

    @property
    def label(self) -> str:
        """The data's name in file names and titles; for CSV files, that of their folder."""
        return Path(self.dir).resolve().stem if self.name == "csv" and self.dir else self.name
