"""What the server computes: the mean of the survivors' models, from what members sent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sofa_fl_flower.masked_sum.masks import SIZE, Masked, combine_shares, decoded, mask
from sofa_fl_flower.masked_sum.member import Revealed
from sofa_fl_flower.masked_sum.plan import SumPlan


class SumError(ValueError):
    """A sum cannot be unmasked.

    Attributes:
        culprits: The members that are to blame for it.
    """

    def __init__(self, why: str, culprits: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.culprits = culprits


def unmasked_mean(
    plan: SumPlan, numbers: Mapping[int, Masked], revealed: Mapping[int, Revealed]
) -> NDArray[np.float32]:
    """The weighted mean of the models of those who sent `numbers`, the survivors.

    `revealed` is what members said of just these survivors.

    Raises:
        SumError: Too few members revealed what they know, or what they sent is wrong.
    """
    survivors = tuple(sorted(numbers))
    gone = [one for one in range(len(plan.keys)) if one not in numbers]
    if gone and (silent := [one for one in survivors if one not in revealed]):
        raise SumError(
            f"{len(gone)} members did not send their models, and {len(silent)} others did not "
            "answer afterwards; only these know the remaining masks"
        )
    total = np.zeros_like(numbers[survivors[0]])
    for row, member in enumerate(survivors):
        shares = {
            by: one.shares[row].tobytes()
            for by, one in revealed.items()
            if member not in one.unread
        }
        if len(revealed) >= plan.threshold > len(shares):
            raise SumError("the other members cannot read the shares of a member", (member,))
        if len(shares) < plan.threshold:
            raise SumError(
                f"{plan.threshold} members must agree on a sum, but {len(shares)} answered"
            )
        secret = combine_shares(shares, plan.threshold)
        total += numbers[member] - mask(secret.to_bytes(SIZE), len(total))
        for seed, other in zip(revealed[member].seeds if gone else (), gone):
            pair = mask(seed.tobytes(), len(total))
            total = total - pair if member < other else total + pair
    weights = plan.weights
    try:
        return decoded(total, sum(weights[one] for one in survivors), sum(weights))
    except ValueError as error:
        raise SumError(str(error)) from None
