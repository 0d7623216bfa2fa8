"""FedAvg within the true groups, which nobody is told but here: what clustering could reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from sofa_fl.errors import ConfigError, DataError
from sofa_fl.federation import Federation
from sofa_fl.methods.clustered import Clustered, ClusteredState, begin
from sofa_fl.sharing import SharingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleConfig:
    """Which of the true groups.

    Attributes:
        level: Where groups are nested: 0 takes the finest, 1 those above, and so on.
    """

    level: Annotated[int, Ge(0)] = 0


@dataclass(frozen=True, slots=True)
class Oracle(Clustered):
    config: OracleConfig
    sharing: SharingConfig

    def start(self, fed: Federation) -> ClusteredState:
        """The untrained model, for every group."""
        truth, level = fed.data.truth, self.config.level
        if not truth:
            raise DataError(
                "the oracle needs data whose true groups are known: set data.partition=groups"
            )
        if level >= len(truth):
            raise ConfigError(
                f"oracle.level must be below the {len(truth)} levels of true groups, got {level}"
            )
        numbers = {group: number for number, group in enumerate(dict.fromkeys(truth[level]))}
        choice = {client: numbers[truth[level][client]] for client in fed.clients}
        return begin([fed.initial()] * len(numbers), choice, fed)
