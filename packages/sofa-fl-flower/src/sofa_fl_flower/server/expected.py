"""The samples that a run is for, as the server's configuration says; no machine decides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from sofa_fl.errors import ConfigError
from sofa_fl_flower.transport.machine_profile import MachineProfile, SampleFormat, parse_format


@dataclass(frozen=True, slots=True)
class Expected:
    """What the samples of every machine must be.

    Attributes:
        num_classes: Of a classification; a regression has 0.
        max_samples: Most samples of one machine to train on, held out or for testing, and the first
            id that is too large: memory is reserved for this number.
    """

    format: SampleFormat
    num_classes: int = 0
    max_samples: int = 1_000_000

    def __post_init__(self) -> None:
        if self.format.is_regression == bool(self.num_classes):
            raise ConfigError(
                "a classification needs its number of classes, and a regression has none; change "
                f"target={self.format.target[0]} or classes={self.num_classes}"
            )

    @property
    def num_outputs(self) -> int:
        return prod(self.format.target[1]) if self.format.is_regression else self.num_classes

    def refusal(self, profile: MachineProfile) -> str | None:
        """Why a machine cannot take part, if it cannot."""
        if profile.format != self.format:
            return f"its samples must be {self.format}, but are {profile.format}"
        if profile.num_classes > self.num_classes:
            return f"it may have {self.num_classes} classes, but has {profile.num_classes}"
        highest = -1 if profile.ids is None else int(profile.ids.max())
        sizes = (profile.num_train, profile.num_holdout, profile.num_test, highest + 1)
        if max(sizes) > self.max_samples:
            return f"its samples and ids may go up to {self.max_samples}; raise `max_samples`"
        return None


def expected_in(given: Mapping[str, Any]) -> Expected:
    """What the app's keys say of the samples of all machines."""
    for key in ("input", "target"):
        if not given.get(key):
            raise ConfigError(
                f"the app's configuration must describe a sample, but has no {key}; set input, "
                "target, scale, shift and classes in pyproject.toml"
            )
    format = SampleFormat(
        parse_format(str(given["input"])),
        parse_format(str(given["target"])),
        float(given.get("scale", 1.0)),
        float(given.get("shift", 0.0)),
    )
    most = int(given.get("max_samples", 1_000_000))
    return Expected(format, int(given.get("classes", 0)), most)
