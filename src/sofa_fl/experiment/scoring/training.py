"""Whether local training gets anywhere: its loss against that of a constant prediction.

Losses of training batches are compared, not accuracies on test samples: they tell what diverged
from what is merely skewed, overfitted, or tested on a handful of samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.federation import Federation
from sofa_fl.topology.tree import NodeId

FAR = 1.5  # times a constant prediction's loss: no untrained network is there
VERY_FAR = 10.0  # where it is no excuse that the loss falls
VARIED = 0.5  # a client whose classes vary less, in parts of the most, has little to learn

Curves = Mapping[NodeId, NDArray[np.float32]]


def training_of(curves: Curves, fed: Federation, before: Mapping[str, Any]) -> dict[str, Any]:
    """How a round's local training went; `before` is the same of the round before, or empty.

    `first` is the loss of the first batch of all, before any training. `diverged` are the clients
    whose loss is far above it and above a constant prediction's, and `unlearned` those that are
    not yet below that of the best constant prediction.
    """
    known = {client: curve for client, curve in curves.items() if len(curve)}
    if not known:
        return dict(before)
    first = before.get("first", float(np.mean([curve[0] for curve in known.values()])))
    y = fed.data.train.y
    center = y.mean(axis=0, dtype=np.float64) if y.dtype.kind == "f" else None
    diverged, unlearned, ends, constants = [], [], {}, {}
    for client, curve in known.items():
        start, end = _mean(curve[: _part(curve)]), _mean(curve[-_part(curve) :])
        worst, best = constant_losses(client, fed, center)
        ends[client], constants[client] = end, worst
        limit = max(worst, first)
        if not math.isfinite(end) or end > VERY_FAR * limit or end > max(FAR * limit, start):
            diverged.append(client)
        elif end >= best:
            unlearned.append(client)
            constants[client] = best
    flagged = diverged or unlearned
    told: dict[str, Any] = {"diverged": diverged, "unlearned": unlearned}
    if flagged:
        loss = float(np.median([ends[client] for client in flagged]))
        told["loss"] = loss if math.isfinite(loss) else None
        told["constant"] = float(np.median([constants[client] for client in flagged]))
    return {"first": first, "of": len(known), **{key: v for key, v in told.items() if v != []}}


def constant_losses(
    client: NodeId, fed: Federation, center: NDArray[np.float64] | None
) -> tuple[float, float]:
    """The loss of a constant prediction on a client's training samples: a poor one, and the best.

    The poor one takes all classes for equally common, or `center`, the mean of all targets. The
    best is not compared with (infinite) where it is nearly perfect or where samples are not known.
    """
    blind, train = fed.blind_loss, fed.data.train
    if not len(train) or fed.privacy is not None:
        return blind, blind
    if center is not None:
        own = float(((train.y[fed.owned[client]] - center) ** 2).mean())
        return max(blind, own), max(blind, own)
    shares = fed.data.class_counts(fed.owned[client]) / fed.size(client)
    entropy = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    return blind, entropy if entropy > VARIED * blind else math.inf


def training_notes(training: Mapping[str, Any]) -> list[str]:
    """A sentence if clients have diverged, or if most have not learned yet."""
    of = training.get("of", 0)
    loss, constant = training.get("loss"), training.get("constant", 0.0)
    shown = "not finite" if loss is None else f"{loss:.4g}"
    against = f"their training loss is {shown}, that of the constant {constant:.4g}"
    if diverged := training.get("diverged"):
        return [
            f"By their loss, {_clients(len(diverged), of)} no better than a constant prediction, "
            f"because training diverged ({against}): lower local.learning_rate."
        ]
    unlearned = training.get("unlearned", ())
    if 2 * len(unlearned) > of:
        return [
            f"{_clients(len(unlearned), of)} not yet better than a constant prediction ({against}):"
            " run more rounds, or change local.learning_rate."
        ]
    return []


def r2_notes(scores: Mapping[str, Any]) -> list[str]:
    """A sentence if clients have an R² below zero; `scores` are those of a summary's `client`."""
    known = [score for score in scores["accuracies"] if score is not None]
    low = sum(score < 0 for score in known)
    if not low:
        return []
    return [
        f"R² is below zero for {low} of {len(known)} clients: on their test samples they predict "
        "no better than the mean of these would."
    ]


def _clients(count: int, of: int) -> str:
    return f"{count} of {of} clients {'is' if count == 1 else 'are'}"


def _part(curve: NDArray[np.float32]) -> int:
    """A quarter of the batches."""
    return max(1, len(curve) // 4)


def _mean(losses: NDArray[np.float32]) -> float:
    return float(losses.mean(dtype=np.float64))
