"""Which updates can be used: a configuration, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval

from sofa_fl.models.config import Aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """Which updates of clients are used, and how.

    Attributes:
        aggregate: How a cluster's model is computed from its clients' models: their `mean`,
            weighted by samples, or their coordinate-wise `median` or `trimmed` mean, in which all
            clients have the same weight.
        trim: The fraction that the trimmed mean leaves out at either end.
        scale: Set aside an update that is more than this many times as long as the median update of
            its round, unless that is within three times the median distance of the models that
            clients started from.
        patience: Quarantine a client after this many rounds in a row in which its update was set
            aside.
        quarantine: The number of rounds in quarantine; after that, the client is sampled again, and
            a single bad update puts it back into quarantine.
    """

    aggregate: Aggregate = "mean"
    trim: Annotated[float, Interval(ge=0, lt=0.5)] = 0.25
    scale: Annotated[float, Gt(1)] = 10.0
    patience: Annotated[int, Ge(1)] = 3
    quarantine: Annotated[int, Ge(1)] = 5
