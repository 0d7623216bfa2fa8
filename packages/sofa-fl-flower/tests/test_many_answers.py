"""What a server can work out from many answers, none of which is about few samples.

Where it chooses the seeds, it knows what is in which batch, and every loss is an equation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sofa_fl.engine.base import batch_order
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.own_batches import arranged, draw_batches, num_distinct
from sofa_fl_flower.machine.policy import Policy
from sofa_fl_flower.machine.privacy import SitePrivacy
from sofa_fl_flower.machine.site import Site
from sofa_fl_flower.transport.wire_message import MessageBuilder
from test_policy import POLICY, SETUP, clinic, task

BATCHES = 1000  # as many as the policy allows at a time


def solved(policy: Policy) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The loss of every sample of a site, as a server works it out; and as it is."""
    here, builder = ClientMachine(clinic(), SETUP, policy, Site(b"k" * 32)), MessageBuilder()
    asked = task(here, builder, batches=BATCHES, learning_rate=0.0, prior=False)  # the model stays
    answer = here.answer(builder.message(tasks=[asked]))
    losses = answer.arrays[answer.header["outcomes"][0]["losses"]]
    num = len(here.data.train)
    order = batch_order(num, BATCHES, SETUP.local.batch_size, asked["seed"])
    shares = np.stack([np.bincount(batch, minlength=num) for batch in order]) / order.shape[1]
    found = np.linalg.lstsq(shares, losses.astype(np.float64))[0]
    model = here.learner.initial(0)
    sets = [np.array([row]) for row in range(num)]
    sums = here.learner.sums(model, sets, "train", [None] * num)
    return found, np.array([one.sum(axis=0)[0] for one in sums])


def test_losses_of_batches_that_the_server_knows_tell_the_loss_of_every_sample() -> None:
    """So it once was; no answer was about fewer than `min_rows` samples."""
    found, true = solved(replace(POLICY, own_batches=False, coarse_scores=False))
    np.testing.assert_allclose(found, true, atol=1e-3)


@pytest.mark.parametrize(
    "policy",
    [
        POLICY,
        replace(POLICY, coarse_scores=False),
        replace(POLICY, own_batches=False),
        replace(POLICY, privacy=SitePrivacy(epsilon=100.0)),
        replace(POLICY, privacy=SitePrivacy(epsilon=100.0), own_batches=False),
    ],
    ids=["both", "its own batches", "coarse", "and a privacy budget", "a privacy budget"],
)
def test_losses_of_others_do_not(policy: Policy) -> None:
    found, true = solved(policy)
    assert abs(np.corrcoef(found, true)[0, 1]) < 0.3


@pytest.mark.parametrize("size", [20, 30, 45, 59, 60, 61, 200])
def test_a_site_draws_its_batches_itself(size: int) -> None:
    """Of 60 samples: never few of them, and never all but a few."""
    first, again = (draw_batches(60, 60, 50, size, 20) for _ in range(2))
    assert not np.array_equal(first, again)
    for batch in first:
        counts = np.bincount(batch, minlength=60)
        assert counts.sum() == size
        assert len(np.unique(batch)) >= 20
        assert (len(np.unique(batch)) == size) == (2 * size <= 60)
    positions = arranged(first, seed=7)
    assert np.array_equal(positions[batch_order(len(positions), 50, size, 7)], first)


def test_samples_of_others_do_not_crowd_out_its_own() -> None:
    drawn = draw_batches(120, 60, 50, 50, 20)
    assert num_distinct(drawn, 60) >= 20
    refused = draw_batches(6000, 60, 1000, 50, 20)
    assert num_distinct(refused, 60) < 20
    assert len(refused) == 1, "no more are drawn in vain"
