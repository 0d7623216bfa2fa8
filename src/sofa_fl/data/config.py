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
    """Which data, and how they are dealt out to the clients.

    Attributes:
        name: `mnist`, `fashion-mnist`, `languages`, `heart`, `weather`, the name of a folder of idx
            files, or `csv` for CSV files of clients in `dir`. Languages, hospitals and weather
            stations are clients as they are: nothing is dealt out, and where `model` has its
            defaults, a network takes their place that suits the data.
        dir: Folder to look in first.
        num_clients: Number of clients.
        partition: How training and test samples are dealt out. `groups`, `odd` and `sites` deal out
            as `iid` does, then show groups of clients different things. `groups`: images turned by
            quarters, and labels swapped within a rotation. `odd`: the last client calls every class
            otherwise. `sites`: images turned by 45° per region, and by 15° more per site within it;
            labels keep their meaning. A run records `natural` for data with clients of their own,
            and `own` for data that was passed from Python and already dealt out.
        alpha: Concentration of `dirichlet`; smaller means that clients differ more.
        min_samples: Training samples that every client has at least, before the holdout.
        shards_per_client: Shards of label-sorted samples per client, for `shards`.
        num_rotations: Rotations of the images, for `groups` and scenarios.
        num_swaps: Variants of the labels within each rotation, for `groups` and scenarios.
        num_regions: Regions, for `sites`.
        num_sites: Sites within each region, for `sites`.
        samples: Training samples that every client has at most, before the holdout; drawn by the
            seed.
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
    num_regions: Annotated[int, Ge(1)] = 4
    num_sites: Annotated[int, Ge(1)] = 2
    samples: Annotated[int, Ge(1)] | None = None
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
