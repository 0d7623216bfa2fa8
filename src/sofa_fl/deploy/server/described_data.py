"""The federation's data as the server knows them: whose each row is, but no values.

A sample is a row number here as everywhere; the arrays behind the numbers are placeholders.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.federated_data import ClientData, FederatedData, Samples
from sofa_fl.deploy.transport.machine_profile import MachineProfile


@dataclass(frozen=True, slots=True)
class DescribedData(FederatedData):
    """A federation's data, as described by its machines.

    Attributes:
        fingerprints: Of the first clients; a resumed run must have the same.
        variance: Of all targets of a regression.
        max_clients: How many clients there may ever be.
    """

    fingerprints: tuple[str, ...] = ()
    variance: float = 0.0
    max_clients: int = 0

    @property
    def first_id(self) -> int:
        return max(self.max_clients, len(self.clients))

    def class_counts(self, rows: Samples) -> NDArray[np.int64]:
        """Zeros: the server does not know them, and every machine adds its own class mix."""
        return np.zeros(self.num_outputs, dtype=np.int64)

    @property
    def target_variance(self) -> float:
        return self.variance

    def digest(self) -> str:
        return hashlib.blake2b(" ".join(self.fingerprints).encode(), digest_size=16).hexdigest()


def assign_rows(profile: MachineProfile, first: int, first_test: int) -> ClientData:
    """Number a machine's samples: held-out ones from `first` on, then those to train on.

    Training samples that have ids keep them.
    """
    holdout = np.arange(first, first + profile.num_holdout)
    train = profile.ids
    if train is None:
        train = np.arange(profile.num_train) + first + profile.num_holdout
    return ClientData(train, holdout, np.arange(first_test, first_test + profile.num_test))
