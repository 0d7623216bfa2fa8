"""The clients of one stage: made once, and the same in all rounds until data or clients change.

So a round costs what its own clients cost, however many others are present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from sofa_fl.data.federated_data import FederatedData, OwnedRows, Samples, Stage
from sofa_fl.errors import ConfigError
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId

if TYPE_CHECKING:
    from sofa_fl.engine.base import Prior

T = TypeVar("T")
Noised = Callable[[NodeId, NDArray[np.int64]], NDArray[np.int64]]
MOST_MEANS = 1_000_000  # numbers that are kept of all clients' mean inputs: 4 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """When clients are scored on their test samples, and how many.

    Attributes:
        every: Rounds from one evaluation to the next; the warm-up and the last round are always
            evaluated.
        clients: Up to 1, the fraction of the clients that are scored in an evaluation; above 1,
            their number. They are newly sampled each time, from those that have test samples.
    """

    every: Annotated[int, Ge(1)] = 1
    clients: Annotated[float, Gt(0)] = 1.0

    def __post_init__(self) -> None:
        if self.clients > 1 and self.clients != int(self.clients):
            raise ConfigError(
                f"evaluate.clients above 1 must be a whole number of clients, got {self.clients}; "
                "use 1 for all of them"
            )

    @property
    def is_complete(self) -> bool:
        """Whether every client is scored in every round."""
        return self.every == 1 and self.clients == 1

    def is_due(self, round: int, rounds: int) -> bool:
        return round % self.every == 0 or round == rounds

    def draw(self, clients: Sequence[NodeId], seed: int, round: int) -> tuple[NodeId, ...]:
        """Those of `clients` that are scored in a round, in their order; at least one."""
        wanted = self.clients * len(clients) if self.clients < 1 else self.clients
        number = max(1, int(wanted + 0.5))
        if self.clients == 1 or number >= len(clients):
            return tuple(clients)
        chosen = rng_for(seed, round, "evaluate").choice(len(clients), number, replace=False)
        return tuple(clients[at] for at in sorted(chosen.tolist()))


class Lazy(Mapping[NodeId, T]):
    """A mapping of clients to what `make` gives, made when it is first asked for."""

    def __init__(self, clients: Mapping[NodeId, object], make: Callable[[NodeId], T]) -> None:
        self._clients, self._make = clients, make
        self._made: dict[NodeId, T] = {}

    def __getitem__(self, client: NodeId) -> T:
        if client not in self._made:
            if client not in self._clients:
                raise KeyError(client)
            self._made[client] = self._make(client)
        return self._made[client]

    def __contains__(self, client: object) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


class Late(Mapping[NodeId, T]):
    """A mapping that is made as a whole when somebody looks at it."""

    def __init__(self, make: Callable[[], Mapping[NodeId, T]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[NodeId, T]:
        return self._make()

    def __getitem__(self, client: NodeId) -> T:
        return self._made[client]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class Present:
    """The clients of a stage of `data`, and what each has; `noised` changes class counts."""

    def __init__(
        self, data: FederatedData, stage: Stage, with_priors: bool, noised: Noised | None = None
    ) -> None:
        self.data, self.stage, self.noised = data, stage, noised
        self.with_priors = with_priors and data.train.y.dtype.kind != "f"

    @cached_property
    def clients(self) -> tuple[NodeId, ...]:
        return tuple(map(NodeId, self.stage.clients))

    @cached_property
    def owned(self) -> OwnedRows[NodeId]:
        rows = {NodeId(client): rows.train for client, rows in self.stage.clients.items()}
        return OwnedRows(rows, self.data.sources)

    @cached_property
    def sizes(self) -> dict[NodeId, int]:
        return {client: len(rows) for client, rows in self.owned.items()}

    @cached_property
    def place(self) -> dict[NodeId, int]:
        """Where in `clients` each client is."""
        return {client: place for place, client in enumerate(self.clients)}

    @cached_property
    def lists(self) -> Mapping[str, list[Any]]:
        """What records tell of every client, in their order; `nothing` is a zero for each."""
        known = self.data.names
        return {
            "clients": list(self.clients),
            "samples": list(self.sizes.values()),
            "nothing": [0.0] * len(self.clients),
            "names": [known[client] for client in self.clients] if known else [],
        }

    @cached_property
    def priors(self) -> Mapping[NodeId, Prior | None]:
        return Lazy(self.owned, self._prior)

    @cached_property
    def prior_rows(self) -> NDArray[np.float32]:
        """The priors as rows; without columns, if there are none."""
        rows = [row for row in self.priors.values() if row is not None]
        return np.stack(rows) if rows else np.zeros((len(self.clients), 0), dtype=np.float32)

    def _prior(self, client: NodeId) -> Prior | None:
        if self.noised is None or not self.with_priors:
            return self.prior_of(self.owned[client])
        return log_shares(self.noised(client, self.data.class_counts(self.owned[client])))

    @cached_property
    def tested(self) -> tuple[NodeId, ...]:
        """Those that have test samples; all, if none has."""
        rows = self.stage.clients
        return tuple(client for client in self.clients if len(rows[client].test)) or self.clients

    @property
    def step(self) -> int:
        """The distance of the entries of an input that `mean_inputs` has; 1 is all of them."""
        return -(-int(self.data.train.x[0].size) * len(self.owned) // MOST_MEANS)

    @cached_property
    def mean_inputs(self) -> NDArray[np.float32]:
        """The mean input of every client, as a network sees it: all entries, or every k-th."""
        train = self.data.train
        means = [mean_input(train.x[rows], self.step) for rows in self.owned.values()]
        return np.stack(means) * np.float32(train.scale) + np.float32(train.shift)

    def prior_of(self, samples: Samples) -> Prior | None:
        return log_shares(self.data.class_counts(samples)) if self.with_priors else None


def mean_input(x: NDArray[Any], step: int = 1) -> NDArray[np.float32]:
    """Every `step`-th entry of the mean of inputs."""
    flat = x.reshape(len(x), -1)
    mean: NDArray[np.float32] = flat[:, ::step].mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def log_shares(counts: NDArray[np.int64]) -> Prior:
    """The log of how common each class is, one more than counted of each."""
    more = counts + 1
    shares: Prior = np.log(more / more.sum()).astype(np.float32)
    return shares
