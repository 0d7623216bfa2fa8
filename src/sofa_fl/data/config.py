"""The part of the configuration that says which data there are and who owns what."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from sofa_fl.data.csv_files import CsvConfig
from sofa_fl.data.scenarios import ScenarioConfig

PartitionName = Literal["dirichlet", "iid", "shards", "groups", "natural", "own"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which data, and how they are dealt out to the clients.

    Attributes:
        name: `mnist`, `fashion-mnist`, or the name of a folder of idx files; `csv` for CSV files of
            clients in `dir`.
        dir: Folder to look in first.
        num_clients: Number of clients.
        partition: How training and test samples are dealt out. A run records `natural` for data
            with clients of their own, and `own` for data that was passed from Python and already
            dealt out.
        alpha: Concentration of `dirichlet`; smaller means that clients differ more.
        min_samples: Training samples that every client has at least, before the holdout.
        shards_per_client: Shards of label-sorted samples per client, for `shards`.
        num_rotations: Rotations of the images, for `groups` and scenarios.
        num_swaps: Variants of the labels within each rotation, for `groups` and scenarios.
        holdout: Fraction of each client's training samples that losses are compared on;
            at least one sample of two or more, none if 0.
        num_train: Use only so many training samples, drawn by the seed.
        num_test: Use only so many test samples, drawn by the seed.
        score_on: `validation` puts a sixth of the training samples aside and scores on them in
            place of the test samples: to make choices by.
        scenario: How all this changes during a run; groups are then formed with any partition.
        csv: How the files of `name: csv` are read.
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
    holdout: Annotated[float, Ge(0), Lt(1)] = 0.05
    num_train: Annotated[int, Ge(1)] | None = None
    num_test: Annotated[int, Ge(1)] | None = None
    score_on: Literal["test", "validation"] = "test"
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    csv: CsvConfig = field(default_factory=CsvConfig)

    @property
    def label(self) -> str:
        """What the data are called in names and titles: CSV files by their folder."""
        return Path(self.dir).resolve().stem if self.name == "csv" and self.dir else self.name
