"""The trial of a parent: what those who went on learned, against what the parent did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from sofa_fl.federation import Federation
from sofa_fl.methods.rules.parent_trial import Trial, counts, is_better_alone, trials_of
from sofa_fl.topology.tree import NodeId

ONE, TWO, OTHER, PARENT = map(NodeId, range(4))


def federation(**sizes: int) -> Federation:
    """100 held-out samples of each client, unless another number is given: `_0=50`."""
    fed = SimpleNamespace(judged_on=lambda client: range(sizes.get(f"_{client}", 100)))
    return cast(Federation, fed)


def is_better(
    own: dict[NodeId, float], parents: dict[NodeId, float], fed: Federation | None = None
) -> bool:
    """The verdict, if these losses are left of 1.0; only the clients in `own` went on from it."""
    tried = {client: Trial(PARENT, 1.0, 1.0, goes_on=client in own) for client in parents}
    losses = {client: np.array([loss, own.get(client, 9.0)]) for client, loss in parents.items()}
    return is_better_alone(tried, losses, fed or federation())


def test_every_other_client_goes_on_from_its_own_model() -> None:
    losses = {NodeId(c): np.array([3.0 + c, 9.0, 1.0 + c]) for c in range(5)}
    found = trials_of([NodeId(0), NodeId(3), NodeId(4)], PARENT, losses)
    assert found == {
        0: Trial(PARENT, own_loss=1.0, parent_loss=3.0, goes_on=True),
        3: Trial(PARENT, own_loss=4.0, parent_loss=6.0, goes_on=False),
        4: Trial(PARENT, own_loss=5.0, parent_loss=7.0, goes_on=True),
    }


@pytest.mark.parametrize(
    ("own", "parents", "better"),
    [
        (0.7, (0.8, 0.8, 0.8), True),  # alone 0.3 is learned, by the parent 0.2
        (0.9, (0.8, 0.8, 0.8), False),  # 0.1 against 0.2
        (0.8, (0.8, 0.8, 0.8), False),  # as much
        (0.8, (1.0, 1.0, 0.1), False),  # 0.2 against 0.3: all three tell about the parent
    ],
)
def test_who_learned_more(own: float, parents: tuple[float, float, float], better: bool) -> None:
    """Two go on alike."""
    by_parent = dict(zip((ONE, TWO, OTHER), parents))
    assert is_better({ONE: own, TWO: own}, by_parent) is better
    assert is_better({}, by_parent) is False
    assert is_better({}, {}) is False


@pytest.mark.parametrize(("parent", "better"), [(0.69, False), (0.71, True)])
def test_it_must_be_more_by_two_errors_of_those_who_went_on(parent: float, better: bool) -> None:
    """They learned 0.4 and 0.6: on average 0.5, with an error of 0.1."""
    assert is_better({ONE: 0.6, TWO: 0.4}, dict.fromkeys((ONE, TWO, OTHER), parent)) is better


@pytest.mark.parametrize(("own", "better"), [(0.39, False), (0.38, True)])
def test_it_must_be_more_by_two_errors_of_the_parent(own: float, better: bool) -> None:
    """It learned 0.4, 0.5 and 0.6: on average 0.5, with an error of 0.058."""
    assert is_better({ONE: own, TWO: own}, {ONE: 0.6, TWO: 0.5, OTHER: 0.4}) is better


@pytest.mark.parametrize(("parent", "better"), [(0.77, False), (0.80, True)])
def test_both_errors_count_together(parent: float, better: bool) -> None:
    """0.1 and 0.1: two times 0.141; the sum would be 0.4, and the larger one 0.2."""
    parents = {ONE: parent - 0.1, TWO: parent + 0.1}
    assert is_better({ONE: 0.6, TWO: 0.4}, parents) is better


def test_one_client_decides_nothing() -> None:
    """Nobody knows what is chance: there is no spread."""
    parents = {ONE: 1.0, TWO: 1.0, OTHER: 1.0}
    assert is_better({ONE: 0.0}, parents) is False
    assert is_better({ONE: 0.0}, {ONE: 1.0}) is False
    assert is_better({ONE: 0.0, TWO: 0.0}, parents) is True


def test_samples_count() -> None:
    own, parents = {ONE: 0.7, TWO: 0.72}, {ONE: 0.9, TWO: 0.72}
    assert is_better(own, parents, federation(_0=90, _1=10)), "0.298 against 0.118"
    assert not is_better(own, parents, federation(_0=10, _1=90)), "0.282 against 0.262"
    own, parents = {ONE: 0.7, TWO: 0.95}, {ONE: 0.9, TWO: 0.9}
    assert is_better(own, parents, federation(_0=90, _1=10)), "0.275 against 0.1"
    assert not is_better(own, parents), "0.175, with an error of 0.125"
    assert counts([TWO, ONE], federation(_0=90, _1=10)).tolist() == [10, 90]
