"""How clients train, who executes it and what goes wrong: a configuration, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

Name = Literal["sequential", "workers", "stacked", "ray"]
EngineName = Literal["auto", Name]
Precision = Literal["float32", "tf32", "bf16"]
Fraction = Annotated[float, Interval(ge=0, le=1)]
FaultKind = Literal["nan", "huge", "flip", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """How a client trains: its budget per round, and the optimizer.

    Attributes:
        batches: Batches per client and round; together with `batch_size`, this is the budget.
        batch_size: Samples per batch.
        optimizer: `adam` or `sgd`.
        learning_rate: Step size, the same in all rounds.
        prior: Correct for the class mix, in classification: in training, add the log of each
            class's frequency among the samples to the outputs; when a client uses its model, add
            the log frequencies of its own classes (arXiv:2007.07314). The network then learns what
            classes look like, not how common they are at each client, so models of clients with
            different class mixes agree.
        weight_decay: L2 penalty.
        momentum: For `sgd`.
        precision: The precision of multiplications in training: `float32`; `tf32`, float32 with a
            ten-bit mantissa on GPUs that support it; or `bf16`. Weights and sums are always
            float32. Models trained in bf16 are scored in tf32 if they are stacked on a GPU.
    """

    batches: Annotated[int, Ge(1)] = 25
    batch_size: Annotated[int, Ge(1)] = 100
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Annotated[float, Gt(0)] = 2e-3
    prior: bool = True
    weight_decay: Annotated[float, Ge(0)] = 1e-4
    momentum: Annotated[float, Ge(0)] = 0.0
    precision: Precision = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsConfig:
    """Simulated faults of clients.

    Attributes:
        dropout: The probability that a sampled client does not answer.
        straggle: The probability that it finishes only some of its batches in time.
        bad: The fraction of the clients, drawn once, that always send bad updates.
        kind: The kind of bad updates: `nan`; `huge`, a hundred times too long; `flip`, the opposite
            direction; `mixed`, one of these per client, in turn.
    """

    dropout: Fraction = 0.0
    straggle: Fraction = 0.0
    bad: Fraction = 0.0
    kind: FaultKind = "mixed"

    @property
    def are_there(self) -> bool:
        return max(self.dropout, self.straggle, self.bad) > 0
