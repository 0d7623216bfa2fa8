"""A site's privacy budget: what its answers have cost so far, and whether another may be given.

Samples to train on, held out and for testing are different ones, so each part has the budget for
itself. Google's dp-accounting adds up the costs; neighbours are data with one sample more or less.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval

from sofa_fl.privacy.accounting import Cost, epsilon_of
from sofa_fl_flower.machine.sealed_log import Log
from sofa_fl_flower.transport.message_checks import RefusalError

SitePart = Literal["train", "holdout", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePrivacy:
    """Differential privacy of all answers of a site.

    Attributes:
        epsilon: The privacy budget for all answers, in all runs together; 0 adds no noise and
            counts nothing.
        delta: The probability with which answers may cost more than `epsilon`.
        clip: Length to which the gradient of a sample is clipped.
        noise: The noise on a batch's summed gradients, in units of what one sample can change.
        score_noise: The same for summed losses, correct predictions and class counts. With the
            default, 200 scores cost 7.1, about as much as 25 batches per round cost in 20 rounds
            with the default `noise`: the budget of the held-out samples lasts as long as that of
            the training samples.
        max_loss: Value to which the loss of a sample is clipped; a blind guess among ten classes
            loses 2.3.
    """

    epsilon: Annotated[float, Ge(0)] = 0.0
    delta: Annotated[float, Interval(gt=0, lt=1)] = 1e-5
    clip: Annotated[float, Gt(0)] = 1.0
    noise: Annotated[float, Gt(0)] = 1.0
    score_noise: Annotated[float, Gt(0)] = 10.0
    max_loss: Annotated[float, Gt(0)] = 2.5


@dataclass(frozen=True, slots=True)
class Budget:
    """What a site has spent, and may still spend."""

    config: SitePrivacy
    log: Log

    def spend(self, part: SitePart, cost: Cost, **record: Any) -> float:
        """Record a cost before its answer is computed; raise if it would be too much.

        `record` is kept with it. Returns what the part has cost with it.
        """
        with self.log.locked():
            content = self._lines()
            before = [Cost(*line["cost"]) for line in _parse(content) if line["part"] == part]
            total = epsilon_of([*before, cost], self.config.delta)
            if total > self.config.epsilon:
                spent = epsilon_of(before, self.config.delta)
                raise RefusalError(
                    f"this site's privacy budget does not allow this request: its {part} samples "
                    f"have cost epsilon = {spent:.2f} of {self.config.epsilon:g}, and would then "
                    f"have cost {total:.2f}"
                )
            values = [cost.rate, cost.noise, cost.steps]
            line = json.dumps({"part": part, "cost": values, **record}) + "\n"
            self.log.append(line.encode(), len(content))
            return total

    def recorded(self, name: str) -> Any:
        """The newest record of this name; None if there is none."""
        found = [line[name] for line in _parse(self._lines()) if name in line]
        return found[-1] if found else None

    def spent(self) -> dict[str, float]:
        """What each part has cost."""
        lines = _parse(self._lines())
        parts = sorted({line["part"] for line in lines})
        return {
            part: epsilon_of(
                [Cost(*line["cost"]) for line in lines if line["part"] == part], self.config.delta
            )
            for part in parts
        }

    def _lines(self) -> bytes:
        """All whole lines."""
        content = self.log.read()
        return content[: content.rfind(b"\n") + 1]


def _parse(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]
