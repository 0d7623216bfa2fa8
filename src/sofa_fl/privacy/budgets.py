"""What every client's answers have cost so far, part by part of its samples, and may still cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from sofa_fl.privacy.accounting import Cost, epsilon_of
from sofa_fl.topology.tree import NodeId

SamplePart = Literal["train", "holdout"]
Account = tuple[NodeId, SamplePart]
Steps = dict[tuple[float, float], int]  # by rate and noise


@dataclass(slots=True)
class Budgets:
    """A budget of `epsilon` for either part of every client's samples.

    Attributes:
        planned: Costs that were found to fit together; up to these nothing is computed again.
    """

    epsilon: float
    delta: float
    planned: dict[Account, Steps] = field(default_factory=dict)
    spent: dict[Account, Steps] = field(default_factory=lambda: defaultdict(dict))

    def plan(self, account: Account, *costs: Cost) -> None:
        """Note costs that together cost no more than the budget."""
        if self._cost({(cost.rate, cost.noise): cost.steps for cost in costs}) <= self.epsilon:
            self.planned[account] = {(cost.rate, cost.noise): cost.steps for cost in costs}

    def spend(self, account: Account, cost: Cost) -> bool:
        """Note a cost, and return True; return False, and note nothing, if it is too much."""
        after = dict(self.spent[account])
        kind = cost.rate, cost.noise
        after[kind] = after.get(kind, 0) + cost.steps
        planned = self.planned.get(account, {})
        fits = all(steps <= planned.get(kind, 0) for kind, steps in after.items())
        if not fits and self._cost(after) > self.epsilon:
            return False
        self.spent[account] = after
        return True

    def epsilon_spent(self) -> float:
        """The most that any part of any client's samples has cost."""
        different = {tuple(sorted(steps.items())) for steps in self.spent.values()}
        return max((self._cost(dict(steps)) for steps in different), default=0.0)

    def _cost(self, steps: Steps) -> float:
        costs = [Cost(rate, noise, num) for (rate, noise), num in steps.items()]
        return epsilon_of(costs, self.delta)

    def saved(self) -> tuple[tuple[int, str, float, float, int], ...]:
        """All that was spent, as a checkpoint keeps it."""
        return tuple(
            (int(client), part, rate, noise, steps)
            for (client, part), kinds in self.spent.items()
            for (rate, noise), steps in kinds.items()
        )

    def restore(self, saved: tuple[tuple[int, str, float, float, int], ...]) -> None:
        """Go back to what `saved` returned."""
        self.spent.clear()
        for client, part, rate, noise, steps in saved:
            account: Account = NodeId(client), "train" if part == "train" else "holdout"
            self.spent[account][rate, noise] = steps
