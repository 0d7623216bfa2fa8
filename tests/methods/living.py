"""Federations that live, for methods: data change, clients come, go and fail; in closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sofa_fl.data.concepts import Concept, Phase, Script
from sofa_fl.data.federated_data import FederatedData, Stage
from sofa_fl.engine.base import Engine, Outcome, Task
from sofa_fl.engine.config import FaultsConfig
from sofa_fl.engine.faulty import FaultyEngine
from sofa_fl.federation import Federation
from sofa_fl.methods.method import View
from sofa_fl.models.flat import as_vector
from sofa_fl.topology.tree import NodeId, Tree
from tests.engine.quadratic import quadratic_data
from tests.methods.cases import LOCAL, Spy

SIZE = 12  # numbers of a model
A, B, C, D = (Concept(10.0 * k) for k in range(4))
THREE_GROUPS = {client: (A, B, C)[client // 3] for client in range(9)}
# One of every group goes, two come; then another goes, one comes, and one is back.
CHURN: Script = [
    Phase(0, THREE_GROUPS),
    Phase(2, {0: A, 2: A, 3: B, 5: B, 6: C, 7: C, 9: A, 10: C}),
    Phase(4, {1: A, 2: A, 3: B, 5: B, 6: C, 7: C, 9: A, 10: C, 11: B}),
]
# Two change positions, and the third group sees something new; later one goes back.
DRIFT: Script = [
    Phase(0, THREE_GROUPS),
    Phase(2, THREE_GROUPS | {0: B, 3: A, 6: D, 7: D, 8: D}),
    Phase(4, THREE_GROUPS | {3: A, 6: D, 7: D, 8: D}),
]
# Everybody goes: one stays whom nobody may have heard; others come, to known groups and a new one.
ALMOST_ALL_GO: Script = [Phase(0, THREE_GROUPS), Phase(2, {4: B})]
ALL_REPLACED: Script = [
    Phase(0, THREE_GROUPS),
    Phase(2, {4: B, 9: A, 10: A, 11: B, 12: B, 13: D, 14: D}),
]
NOBODY_STAYS: Script = [
    Phase(0, THREE_GROUPS),
    Phase(2, {9: A, 10: A, 11: B, 12: B, 13: D, 14: D}),
    Phase(4, {0: A, 1: A}),
]


def world(
    script: Script, noise: float = 0.3, spread: float = 0.3, held: int = 4
) -> tuple[FederatedData, Engine]:
    """Samples of a client around the point of its concept, a little to its own side of it."""
    played = list(dict.fromkeys(cast for phase in script for cast in phase.concepts.items()))
    numbers = {concept: at for at, concept in enumerate(dict.fromkeys(c for _, c in played))}
    everybody = sorted({client for client, _ in played})
    points = 4 * np.eye(len(numbers), SIZE)  # all equally far apart
    sides = spread * np.random.default_rng(6).normal(size=(len(everybody), SIZE))
    centres = np.array([points[numbers[concept]] + sides[client] for client, concept in played])
    data, engine = quadratic_data(centres, num_samples=10 * held, noise=noise)
    rows = {  # of unequal size
        cast: replace(own, train=own.train[: 20 + cast[0]])
        for cast, own in zip(played, data.clients)
    }

    def truth(phase: Phase) -> tuple[tuple[int, ...], ...]:
        fine = [numbers[phase.concepts[c]] if c in phase.concepts else -1 for c in everybody]
        return tuple(fine), tuple(group // 2 for group in fine)

    stages = tuple(
        Stage(
            phase.since,
            {c: rows[c, phase.concepts[c]] for c in sorted(phase.concepts)},
            truth(phase),
        )
        for phase in script
    )
    first = {client: rows[client, concept] for client, concept in reversed(played)}
    clients = tuple(first[client] for client in everybody)
    data = replace(data, clients=clients, truth=stages[0].truth, stages=stages)
    return data, engine


def living(
    script: Script,
    *,
    spy: bool = False,
    participation: float = 1.0,
    alike: bool = False,
    **faults: Any,
) -> Federation:
    """If `alike`, clients of a group differ by noise alone: so they gain by each other."""
    data, engine = world(script, 1.0, 0.0, 40) if alike else world(script)
    engine = Spy(engine) if spy else engine
    if faults:
        engine = FaultyEngine(engine, FaultsConfig(**faults), len(data.clients), seed=3)
    return Federation(
        data,
        engine,
        LOCAL,
        seed=3,
        warmup=5,
        participation=participation,
        lossy=bool(faults),
    )


@dataclass
class Mute(Spy):
    """An engine that has no answer of some clients."""

    mute: frozenset[int] = frozenset()

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        tasks = list(tasks)
        answers = iter(super().train(task for task in tasks if task.site not in self.mute))
        return [None if task.site in self.mute else next(answers) for task in tasks]


def check_view(view: View, fed: Federation, heard: Sequence[NodeId] | None = None) -> None:
    """All that a view owes; `heard` are those at least who must be in it, by default all."""
    there = set(fed.clients)
    assert set(view.tree.clients) == set(view.served) <= there
    assert set(fed.clients if heard is None else heard) & there <= set(view.served)
    assert view.tree.is_compact
    assert set(view.models) <= set(view.tree.parent)
    assert view.tree.root in view.models
    for model in (*view.models.values(), *view.served.values()):
        vector = as_vector(model)
        assert vector.shape == (SIZE,)
        assert bool(vector.isfinite().all())
    pools = set(view.shared.pools) - view.tree.members  # a client may keep what it was given
    assert pools == set(view.tree.clusters)


def keys_in(value: Any, path: str = "state") -> Iterator[tuple[str, Any]]:
    """The keys of all mappings in a state, and the clients of its trees, with where they are."""
    if isinstance(value, Tree):
        yield from ((f"{path}.clients", client) for client in value.clients)
    if dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from keys_in(getattr(value, part.name), f"{path}.{part.name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield path, key
            yield from keys_in(item, f"{path}.{key}")
    elif isinstance(value, tuple | list):
        for at, item in enumerate(value):
            yield from keys_in(item, f"{path}.{at}")
