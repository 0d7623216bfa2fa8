"""The protocol of secure aggregation: the mean is right, and no lie shows fewer than agreed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sofa_fl_flower.masked_sum import masks
from sofa_fl_flower.masked_sum.masks import (
    LIMIT,
    NUM_CHECKS,
    encoded,
    pair_seed,
    public_of,
    sealed_share,
    sum_key_of,
    unsealed_share,
)
from sofa_fl_flower.masked_sum.member import MaskedModel, Revealed, masked, reveal
from sofa_fl_flower.masked_sum.plan import (
    SumPlan,
    flaw_of_keys,
    flaw_of_plan,
    flaw_of_survivors,
    threshold_for,
)
from sofa_fl_flower.masked_sum.unmask import SumError, unmasked_mean
from sofa_fl_flower.transport.message_checks import MessageError

KEYS = [sum_key_of(bytes([i]) * 32) for i in range(9)]
SIZE = 50


def plan_of(sizes: list[int], smallest: int = 3, session: str = "one") -> SumPlan:
    keys = tuple(public_of(key) for key in KEYS[: len(sizes)])
    return SumPlan(session, keys, tuple(sizes), threshold_for(len(sizes), smallest))


def models_of(num: int, seed: int = 0, scale: float = 1.0) -> NDArray[np.float32]:
    numbers = np.random.default_rng(seed).normal(0, scale, (num, SIZE))
    return numbers.clip(-LIMIT, LIMIT).astype(np.float32)


def aggregate(
    plan: SumPlan,
    models: NDArray[np.float32],
    survivors: tuple[int, ...],
    answering: tuple[int, ...],
) -> NDArray[np.float32]:
    """Both exchanges: `survivors` send their models, of whom `answering` help to unmask."""
    sent = {one: masked(plan, KEYS[one], models[one]) for one in survivors}
    said = {one: told(plan, one, survivors, sent) for one in answering}
    return unmasked_mean(plan, {one: sent[one].numbers for one in survivors}, said)


def told(
    plan: SumPlan, member: int, survivors: tuple[int, ...], sent: dict[int, MaskedModel]
) -> Revealed:
    shares = np.stack([sent[one].shares[member] for one in survivors])
    return reveal(plan, KEYS[member], survivors, shares)


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=3, max_size=9),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-4, 1.0, 30.0]),
    draws=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_mean_is_exact_but_for_rounding(
    sizes: list[int], seed: int, scale: float, draws: st.DataObject
) -> None:
    """Whoever drops out: before its model, or after it where nobody else did before."""
    plan, models = plan_of(sizes), models_of(len(sizes), seed, scale)
    everyone = range(len(sizes))
    num = draws.draw(st.integers(plan.threshold, len(sizes)))
    survivors = tuple(sorted(draws.draw(st.permutations(everyone))[:num]))
    answering = survivors
    if num == len(sizes):
        left = draws.draw(st.integers(plan.threshold, num))
        answering = tuple(draws.draw(st.permutations(everyone))[:left])
    mean = aggregate(plan, models, survivors, answering)
    weights = np.array([plan.weights[one] for one in survivors], dtype=np.float64)
    expected = np.average(models[list(survivors)].astype(np.float64), axis=0, weights=weights)
    share = weights.sum() / sum(plan.weights)
    error = len(survivors) * 2.0**-25 / share + 2.0**-23 * np.abs(expected)
    assert (np.abs(mean - expected) <= error).all()


def test_weights_are_the_samples_unless_one_member_has_most() -> None:
    assert plan_of([100, 200, 150]).weights == (100, 200, 150)
    assert plan_of([100, 2000, 150]).weights == (100, 250, 150), "half of all at most"


@pytest.mark.parametrize("where", range(4))
def test_what_a_member_sends_says_nothing_alone(where: int) -> None:
    """A masked model of zeros looks like one of ones: all bits of all numbers are used."""
    plan = plan_of([10] * 4)
    zeros, ones = (
        masked(plan, KEYS[where], np.full(20_000, value, np.float32)).numbers for value in (0, 1)
    )
    for numbers in (zeros, ones):
        bits = np.unpackbits(numbers.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 0.005
        assert len(np.unique(numbers)) > 19_900
    again = masked(plan, KEYS[where], np.zeros(20_000, np.float32)).numbers
    assert (again != zeros).mean() > 0.99, "its own mask is new every time"


def test_too_few_models_are_not_unmasked() -> None:
    plan, models = plan_of([10] * 6), models_of(6)
    assert plan.threshold == 5
    with pytest.raises(SumError, match="5 members must agree on a sum, but 4 answered"):
        aggregate(plan, models, (0, 1, 2, 3), (0, 1, 2, 3))
    with pytest.raises(SumError, match="5 members must agree on a sum, but 4 answered"):
        aggregate(plan, models, tuple(range(6)), (0, 1, 2, 3))


def test_a_dropout_before_and_another_after_its_model_lose_the_sum() -> None:
    plan, models = plan_of([10] * 7), models_of(7)
    assert plan.threshold == 5
    with pytest.raises(SumError, match=r"1 members did not send .* and 1 others did not answer"):
        aggregate(plan, models, (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4))


def test_a_wrong_share_or_seed_is_noticed() -> None:
    plan, models = plan_of([10] * 6), models_of(6)
    survivors = (0, 1, 2, 3, 4)
    sent = {one: masked(plan, KEYS[one], models[one]) for one in survivors}
    said = {one: told(plan, one, survivors, sent) for one in survivors}
    numbers = {one: sent[one].numbers for one in survivors}
    unmasked_mean(plan, numbers, said)
    for field in ("shares", "seeds"):
        wrong = getattr(said[2], field).copy()
        wrong[0, 3] ^= 1
        lies = said | {2: replace(said[2], **{field: wrong})}
        with pytest.raises(SumError, match="a wrong mask or a wrong share"):
            unmasked_mean(plan, numbers, lies)


def test_who_sends_shares_that_nobody_can_read_is_named() -> None:
    plan, models = plan_of([10] * 5), models_of(5)
    everyone = tuple(range(5))
    sent = {one: masked(plan, KEYS[one], models[one]) for one in everyone}
    sent[3] = replace(sent[3], shares=np.zeros_like(sent[3].shares))
    said = {one: told(plan, one, everyone, sent) for one in everyone}
    assert said[0].unread == (3,)
    with pytest.raises(SumError) as caught:
        unmasked_mean(plan, {one: sent[one].numbers for one in everyone}, said)
    assert caught.value.culprits == (3,)


def test_members_with_different_plans_do_not_cancel() -> None:
    """A server that tells one member other sizes, or another threshold, gets noise from it."""
    models, survivors = models_of(4), (0, 1, 2, 3)
    plan = plan_of([10, 20, 30, 40])
    for other in (plan_of([10, 20, 30, 41]), plan_of([10, 20, 30, 40], session="two")):
        plans = [plan, plan, plan, other]
        sent = {one: masked(plans[one], KEYS[one], models[one]) for one in survivors}
        said = {one: told(plans[one], one, survivors, sent) for one in survivors}
        assert said[3].unread == (0, 1, 2), "their shares are of another plan"
        with pytest.raises(SumError):
            unmasked_mean(plan, {one: sent[one].numbers for one in survivors}, said)


def views_of(num: int, threshold: int, member: int) -> list[frozenset[int] | None]:
    """All that a server can tell a member, or nothing."""
    others = [one for one in range(num) if one != member]
    sizes = range(threshold - 1, num)
    found = [frozenset({member, *some}) for n in sizes for some in combinations(others, n)]
    return [None, *found]


def smallest_learned(views: tuple[frozenset[int] | None, ...], threshold: int) -> int:
    """The smallest set of members whose sum is known, when each was told this of who survived.

    Members whose pair masks are not known hang together; such a set can be summed if the own masks
    of all in it are known.
    """
    num = len(views)
    known = [sum(view is not None and one in view for view in views) >= threshold
             for one in range(num)]  # fmt: skip

    def is_hidden(one: int, other: int) -> bool:
        mine, theirs = views[one], views[other]
        return (mine is None or other in mine) and (theirs is None or one in theirs)

    smallest, left = num + 1, set(range(num))
    while left:
        group, todo = set[int](), [left.pop()]
        while todo:
            one = todo.pop()
            group.add(one)
            near = {other for other in left if is_hidden(one, other)}
            left -= near
            todo += near
        if all(known[one] for one in group):
            smallest = min(smallest, len(group))
    return smallest


@pytest.mark.parametrize(("num", "smallest"), [(3, 3), (4, 3), (4, 4), (5, 3), (5, 4), (6, 4)])
def test_no_lie_about_dropouts_unmasks_fewer_members(num: int, smallest: int) -> None:
    """Every combination of what a server can tell the members."""
    threshold = threshold_for(num, smallest)
    views = [views_of(num, threshold, member) for member in range(num)]
    learned = [smallest_learned(told, threshold) for told in product(*views)]
    assert smallest <= min(learned) <= num, "and somebody learns something"


@given(st.integers(7, 12), st.integers(3, 6), st.data())
@settings(max_examples=300, deadline=None)
def test_no_lie_about_dropouts_unmasks_fewer_of_many(
    num: int, smallest: int, draws: st.DataObject
) -> None:
    threshold = threshold_for(num, smallest)
    views = []
    for member in range(num):
        size = draws.draw(st.integers(threshold, num))
        others = [one for one in range(num) if one != member]
        views.append(frozenset({member, *draws.draw(st.permutations(others))[: size - 1]}))
    assert smallest_learned(tuple(views), threshold) >= smallest


def test_a_lower_threshold_would_let_a_lie_unmask_fewer() -> None:
    """So the tests above can fail."""
    threshold = threshold_for(4, 3) - 1
    views = [views_of(4, threshold, member) for member in range(4)]
    assert min(smallest_learned(told, threshold) for told in product(*views)) < 3


def test_what_a_lying_server_gets_is_what_the_rule_says() -> None:
    """With real messages: two are told that all are there, the others that member 0 is gone."""
    plan, models = plan_of([10] * 5), models_of(5)
    assert plan.threshold == 4
    everyone, others = tuple(range(5)), (1, 2, 3, 4)
    sent = {one: masked(plan, KEYS[one], models[one]) for one in everyone}
    alive = {one: told(plan, one, everyone, sent) for one in (0, 1, 2)}
    gone = {one: told(plan, one, others, sent) for one in (3, 4)}
    shares = {one: said.shares[0].tobytes() for one, said in alive.items()}
    with pytest.raises(ValueError, match="4 shares are needed, got 3"):
        masks.combine_shares(shares, plan.threshold)
    assert {one: said.seeds.tobytes() for one, said in gone.items()} == {
        one: pair_seed(KEYS[one], plan.keys[0], plan.digest) for one in (3, 4)
    }, "two of the four pair masks of member 0 are out; those with 1 and 2 still hide it"


def test_plans_that_hide_too_little_have_a_flaw() -> None:
    plan = plan_of([10] * 5)
    assert flaw_of_plan(plan, 3) is None
    assert "at least 6 members" in str(flaw_of_plan(plan, 6))
    assert "4 to 5 of 5 members" in str(flaw_of_plan(replace(plan, threshold=3), 3))
    assert "5 to 5 of 5 members" in str(flaw_of_plan(plan, 5))
    assert "4 to 5 of 5 members" in str(flaw_of_plan(replace(plan, threshold=6), 3))


def test_survivors_that_hide_too_little_have_a_flaw() -> None:
    plan = plan_of([10] * 5)
    assert flaw_of_survivors(plan, (0, 1, 2, 3), 0) is None
    assert "include this site" in str(flaw_of_survivors(plan, (0, 1, 2, 3), 4))
    assert "must be members" in str(flaw_of_survivors(plan, (0, 1, 2, 3, 7), 0))
    assert "4 members must have sent" in str(flaw_of_survivors(plan, (0, 1, 2), 0))
    uneven = plan_of([10, 10, 10, 10, 35])
    assert flaw_of_survivors(uneven, (0, 1, 2, 3, 4), 4) is None
    assert "more than half" in str(flaw_of_survivors(uneven, (0, 1, 2, 4), 4))
    assert flaw_of_survivors(uneven, (0, 1, 2, 4), 0) is None, "the others have less"


def test_members_must_be_peers_where_a_site_names_some() -> None:
    plan = plan_of([10] * 3)
    own, *others = plan.keys
    assert flaw_of_keys(plan, own, ()) is None
    assert flaw_of_keys(plan, own, others) is None
    assert "1 members of the sum are not among" in str(flaw_of_keys(plan, own, others[:1]))
    assert "this site's key" in str(flaw_of_keys(plan, public_of(KEYS[8]), ()))


def test_a_plan_survives_the_wire_and_wrong_ones_do_not() -> None:
    plan = plan_of([10, 20, 30])
    assert SumPlan.from_dict(plan.to_dict()) == plan
    wrong: list[dict[str, object]] = [
        {"keys": [plan.keys[0]] * 3}, {"keys": ["zz" * 32, *plan.keys[1:]]}, {"keys": []},
        {"sizes": [1, 2]}, {"sizes": [1, 2, 0]}, {"sizes": [1, 2, 1.5]}, {"threshold": "2"},
        {"session": None}, {"session": "x" * 101}, {"keys": [[], *plan.keys[1:]]},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(MessageError):
            SumPlan.from_dict({**plan.to_dict(), **change})
    with pytest.raises(MessageError):
        SumPlan.from_dict(None)


@given(st.integers(1, 9), st.data())
@settings(max_examples=40, deadline=None)
def test_any_threshold_of_shares_is_the_secret(num: int, draws: st.DataObject) -> None:
    secret, threshold = masks.new_secret(), draws.draw(st.integers(1, num))
    shares = dict(enumerate(masks.split_secret(secret, threshold, num)))
    some = draws.draw(st.permutations(range(num)))[:threshold]
    assert masks.combine_shares({one: shares[one] for one in some}, threshold) == secret
    with pytest.raises(ValueError, match="shares are needed"):
        masks.combine_shares({}, threshold)


def test_a_share_is_for_one_member_of_one_plan() -> None:
    one, other, third = KEYS[:3]
    digest = b"d" * 32
    content = sealed_share(b"s" * 32, one, public_of(other), digest)
    assert unsealed_share(content, other, public_of(one), digest) == b"s" * 32
    assert unsealed_share(content, other, public_of(one), b"e" * 32) is None
    assert unsealed_share(content, third, public_of(one), digest) is None
    assert unsealed_share(content, one, public_of(other), digest) is None, "not back to the sender"


@pytest.mark.parametrize("value", [LIMIT * 1.01, np.nan, np.inf, -np.inf])
def test_a_number_that_does_not_fit_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match="between -64 and 64"):
        encoded(np.array([0.0, value], dtype=np.float32), 1, 3)


def test_the_largest_numbers_fit() -> None:
    models = np.full((3, SIZE), LIMIT, dtype=np.float32)
    assert aggregate(plan_of([5, 5, 5]), models, (0, 1, 2), (0, 1, 2)) == pytest.approx(LIMIT)
    assert len(encoded(models[0], 1, 3)) == SIZE + NUM_CHECKS


def test_a_key_that_is_none_is_an_error() -> None:
    plan = plan_of([10] * 3)
    plan = replace(plan, keys=(*plan.keys[:2], "00" * 32))
    with pytest.raises(ValueError, match="shared key"):
        masked(plan, KEYS[0], np.zeros(3, np.float32))
