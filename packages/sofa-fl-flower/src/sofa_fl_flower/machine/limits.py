"""Checks of what the server asks against the site's policy, before anything is computed."""

from __future__ import annotations

import math
from typing import Any, get_args

from sofa_fl.data.federated_data import Samples
from sofa_fl.engine.base import TrainedPart
from sofa_fl.engine.task_codec import Header
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import NetworkFactory, build
from sofa_fl_flower.machine.own_batches import num_distinct
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.transport.message_checks import (
    MessageError,
    RefusalError,
    checked_value,
    shown,
)
from sofa_fl_flower.transport.run_setup import RunSetup

LARGEST = 1e6  # weight of a pull
LARGE_BATCH = 1024  # samples that any site can train on at a time


def check_setup(policy: Policy, setup: RunSetup, *, brings_network: bool) -> None:
    """Refuse a run whose network or optimizer the site does not allow."""
    if not brings_network and setup.model != policy.model:
        raise RefusalError(f"this site trains {policy.model}, but was asked to train {setup.model}")
    local = setup.local
    for name, value, most in (
        ("num_outputs", setup.num_outputs, policy.max_classes),
        ("local.learning_rate", local.learning_rate, policy.max_learning_rate),
        ("local.momentum", local.momentum, 1.0),
        ("local.weight_decay", local.weight_decay, 1.0),
    ):
        if not 0 <= value <= most:
            raise RefusalError(f"{name} may be at most {most:g} at this site, got {value:g}")


def check_privacy(policy: Policy, *, is_regression: bool) -> None:
    """Refuse what cannot be told with noise: the sums of a regression's targets."""
    if policy.privacy.epsilon and is_regression:
        raise RefusalError(
            "this site has a privacy budget, so it takes part only in classification"
        )


def check_splits(policy: Policy, num_train: int, num_holdout: int) -> None:
    """Refuse to take part with splits that are smaller than anything may be computed on."""
    for name, size in (("training", num_train), ("held-out", num_holdout)):
        if 0 < size < policy.min_rows or (name == "training" and not size):
            raise RefusalError(
                f"this site computes on at least {policy.min_rows} samples, but has only {size} "
                f"{name} samples; it needs more, or another min_rows or holdout in its policy"
            )


def check_frozen(setup: RunSetup, factory: NetworkFactory) -> None:
    """Refuse a run whose network has another frozen part: models would mean something else."""
    own = FlatNetwork(build(factory, 0)).frozen_digest
    if own != setup.frozen:
        raise RefusalError(
            f"the frozen part of this site's network has the digest {own or 'of nothing'}, but "
            f"that of the run has {shown(setup.frozen or 'of nothing')}; load the same base on all "
            "machines"
        )


def check_batch_size(size: int, num_own: int) -> None:
    """Refuse batches that are far larger than the site's samples: they would fill its memory."""
    if size > (most := max(LARGE_BATCH, 4 * num_own)):
        raise RefusalError(f"local.batch_size may be at most {most} at this site, got {size}")


def check_requests(policy: Policy, num: int, num_trainings: int) -> None:
    """Refuse a message that asks for too much."""
    for what, asked, name in (
        ("requests", num, "max_requests"),
        ("trainings", num_trainings, "max_trainings"),
    ):
        if asked > (most := getattr(policy, name)):
            raise RefusalError(
                f"this site answers at most {most} {what} in a message, got {asked}; ask the site "
                f"to raise {name} in its policy"
            )


def check_training(policy: Policy, num_own: int, num_given: int, batches: int, seed: int) -> None:
    """Refuse a training that is too long, or on too many samples of others."""
    if not 1 <= batches <= policy.max_batches:
        raise RefusalError(
            f"this site trains 1 to {policy.max_batches} batches at a time, got {batches}"
        )
    if not 0 <= seed < 1 << 64:
        raise RefusalError(f"a seed must be a 64-bit number, got {seed}")
    if num_given and not policy.max_received:
        raise RefusalError(
            "this site trains on no samples of other sites; set sharing.ratio to 0, or ask the "
            "site to set max_received in its policy"
        )
    if num_given > policy.max_received * num_own:
        raise RefusalError(
            f"this site accepts at most {policy.max_received:g} samples of other sites for each of "
            f"its own, got {num_given} for {num_own}"
        )


def check_batches(policy: Policy, order: Samples, num_own: int) -> None:
    """Refuse a training of which any batch would tell of too few of the site's samples.

    Every batch counts, not only all of them together: each has a loss of its own, and a strong
    pull makes the model forget all but the last one.
    """
    fewest = num_distinct(order, num_own)
    if fewest < policy.min_rows:
        raise RefusalError(
            f"every batch must have at least {policy.min_rows} distinct samples of this site, but "
            f"one would have {fewest}; raise local.batch_size, share less, or ask the site"
        )


def check_number(name: str, value: float, least: float, most: float) -> None:
    """Refuse a number out of range, or none at all."""
    if not (math.isfinite(value) and least <= value <= most):
        raise RefusalError(f"{name} must be between {least:g} and {most:g}, got {value:g}")


def read_task_values(header: Header, setup: RunSetup) -> dict[str, Any]:
    """How many batches, by which seed, of which part of the network, and how slowly, if slower."""
    values = {name: checked_value(header, name, int) for name in ("batches", "seed")}
    values["part"] = header.get("part", "all")
    if values["part"] not in get_args(TrainedPart):
        raise MessageError(f"part must be one of {get_args(TrainedPart)}, got {values['part']!r}")
    if header.get("learning_rate") is not None:
        rate = checked_value(header, "learning_rate", float)
        check_number("the learning rate of a task", rate, 0.0, setup.local.learning_rate)
        values["learning_rate"] = rate
    return values


def read_pulls(header: Header) -> dict[str, Any] | None:
    """The sum of all pulls, if there are some."""
    if (pulls := header.get("pulls")) is None:
        return None
    weights = {name: checked_value(pulls, name, float) for name in ("weight", "decay")}
    for name, weight in weights.items():
        check_number(f"the {name} of a pull", weight, -LARGEST, LARGEST)
    return {**weights, "target": pulls.get("target")}
