"""The natural federations by name, and the defaults that go with each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sofa_fl.data.config import DataConfig
from sofa_fl.data.natural.heart import read_heart
from sofa_fl.data.natural.languages import read_languages
from sofa_fl.data.natural.natural_records import Records
from sofa_fl.data.natural.weather import read_weather
from sofa_fl.errors import DataError


@dataclass(frozen=True, slots=True)
class Natural:
    """A federation whose clients are what they are.

    Attributes:
        num_clients: How many they are.
        hidden: The hidden layers of a network that suits it.
        read: Reads it, given the folders to look in.
        has_years: Whether its data come in order of years.
    """

    num_clients: int
    hidden: tuple[int, ...]
    read: Callable[[tuple[Path, ...]], Records]
    has_years: bool = False


NATURAL: Mapping[str, Natural] = {
    "languages": Natural(33, (256, 128), read_languages),
    "weather": Natural(49, (64, 32), read_weather, has_years=True),
    "heart": Natural(4, (), read_heart),  # logistic regression
}


def natural_config(config: DataConfig) -> DataConfig:
    """A configuration that says who the clients are; what contradicts that is an error."""
    natural, default = NATURAL[config.name], DataConfig()
    given = {
        "data.num_clients": (config.num_clients, (default.num_clients, natural.num_clients)),
        "data.partition": (config.partition, (default.partition, "natural")),
        "data.num_train": (config.num_train, (None,)),
        "data.num_test": (config.num_test, (None,)),
    }
    for key, (value, allowed) in given.items():
        if value not in allowed:
            raise DataError(
                f"{config.name} has {natural.num_clients} clients with their own samples, got "
                f"{key}={value}; remove it, or set data.samples to train on fewer samples"
            )
    scenarios = ("none", "years") if natural.has_years else ("none",)
    if config.scenario.name not in scenarios:
        raise DataError(
            f"data.scenario.name must be {' or '.join(scenarios)} with data.name={config.name}, "
            f"got {config.scenario.name}"
        )
    return replace(config, num_clients=natural.num_clients, partition="natural")
