"""What a run is called, and baselines as published.

The class-mix correction (`local.prior`) is SOFA-FL's, and on for every method. A baseline that has
it is not the published method, so its title says so with a `+`.
"""

from __future__ import annotations

from dataclasses import replace

from sofa_fl.experiment.run.config import Config
from sofa_fl.methods.registry import MethodInfo, built_in_methods

OURS = "sofa"


def run_title(config: Config, info: MethodInfo, *, has_classes: bool) -> str:
    """The title that was set; otherwise the method's, with a `+` for a corrected baseline.

    In a regression there are no classes, so there is nothing to correct.
    """
    if config.title is not None:
        return config.title
    return info.title + "+" * (has_classes and config.local.prior and is_baseline(info.name))


def as_published(config: Config, method: str) -> Config:
    """The configuration for a method: of a baseline, without the class-mix correction."""
    if not is_baseline(method):
        return config
    return replace(config, local=replace(config.local, prior=False))


def is_baseline(method: str) -> bool:
    """Whether a method is one of the package's, other than SOFA-FL; a user's own is neither."""
    return method != OURS and method in built_in_methods()
