"""Evidence that is made up: losses as a function, and clients in groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from sofa_fl.topology.clustering.config import DmacConfig
from sofa_fl.topology.clustering.evidence import Question
from sofa_fl.topology.geometry.space import Floats, Space
from sofa_fl.topology.tree import NodeId, Tree
from sofa_fl.topology.tree.edits import Edit
from tests.topology.strategies import space_of


@dataclass
class MadeUp:
    """Losses are what `loss` says; every question is written down, with whether it asked for more.

    Attributes:
        counts: The samples of each client; 1 if not named.
        calls: What was not known before, call by call: what is asked with more is known without.
    """

    space: Space
    loss: Callable[[int, tuple[NodeId, ...]], float]
    blind_loss: float = 1.0
    round: int = 0
    moved: Collection[NodeId] = ()
    told_apart: tuple[tuple[NodeId, ...], ...] = ()
    dmac: DmacConfig = field(default_factory=DmacConfig)
    counts: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[Question, bool]] = field(default_factory=list)
    calls: list[set[tuple[Question, bool]]] = field(default_factory=list)

    def samples(self, client: NodeId) -> int:
        return self.counts.get(client, 1)

    def losses(self, questions: Sequence[Question], *, more: bool = False) -> Floats:
        known = {*self.asked, *((question, False) for question, _ in self.asked)}
        if new := {(question, more) for question in questions} - known:
            self.calls.append(new)
        self.asked += [(question, more) for question in questions]
        return np.array([self.loss(client, nodes) for client, nodes in questions])

    def after(self, tree: Tree, edits: Sequence[Edit]) -> MadeUp:
        return self

    @property
    def models_asked(self) -> set[tuple[int, tuple[int, ...]]]:
        return {question for question, _ in self.asked}


def made_up(positions: Sequence[float], losses: dict[tuple[int, int], float], default: float = 0.5):  # type: ignore[no-untyped-def]
    """Clients on a line; the loss of one node for a client as in `losses`."""
    return MadeUp(space_of(positions), lambda c, nodes: losses.get((c, nodes[0]), default))


def apart(sizes: Sequence[int], ratio: float) -> Floats:
    """Groups at a squared distance of 1 within each, and `ratio` to all others."""
    groups = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    rows = np.hstack([np.eye(len(groups)), (ratio - 1) ** 0.5 * groups])
    return np.asarray(rows * 0.5**0.5)


def blobs(rng: np.random.Generator, sizes: Sequence[int], dimensions: int = 60) -> Floats:
    """Groups of noise 1 about centres that are equally far apart."""
    centres = np.repeat(np.eye(len(sizes), dimensions), sizes, axis=0)
    return np.asarray(100 * centres + rng.normal(size=(sum(sizes), dimensions)))
