"""The figures of the results: their files, what they show, and their captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from study.design.contenders import FIXED, MORE_FIXED, NONE, RANDOM


@dataclass(frozen=True, slots=True)
class LossFigure:
    """One of the loss figures in the paper's appendix: its file, and its title."""

    file: str
    title: str


# By the way of sharing, in the order of the paper's appendix.
LOSS_FIGURES: Mapping[str, LossFigure] = {
    RANDOM: LossFigure("losses-random", "With partial data sharing (0.1, new samples every round)"),
    NONE: LossFigure("losses-none", "Without partial data sharing"),
    FIXED: LossFigure("losses-fixed-0.1", "Partial data sharing fixed with ratio 0.1"),
    MORE_FIXED: LossFigure("losses-fixed-0.2", "Partial data sharing fixed with ratio 0.2"),
}
LOSS_CAPTION = (
    "Local loss, mean over all clients, batch by batch; a line per round, a dot at its first batch."
)
CAPTIONS: Mapping[str, str] = {
    "benchmark": "All methods, settings and ways of sharing: the mean and the worst client.",
    "clients": "The paper's comparison of SOFA-FL and HypCluster, client by client.",
    "tree": "The tree that SOFA-FL built in S4, at the end of a run.",
    "disclosure": "What sharing brings by the share of the samples that it discloses.",
    "levels": "What a second level adds to the mean client, by the samples of a client.",
    "privacy": "The mean client by the privacy budget: SOFA-FL, baselines and the oracle.",
    "drift": "Accuracy and agreement with the true groups, round by round.",
    **{each.file: f"{each.title}. {LOSS_CAPTION}" for each in LOSS_FIGURES.values()},
}
