"""Clients that fail, for experiments: an engine that loses, cuts short or spoils what it is asked.

Around any other engine. Who fails when comes from the tasks' own seeds, so it is the same whole or
resumed, on every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from sofa_fl.engine.base import Engine, EngineAround, Outcome, Task
from sofa_fl.engine.config import FaultKind, FaultsConfig
from sofa_fl.models.flat import as_vector
from sofa_fl.seeding import rng_for
from sofa_fl.topology.tree import NodeId

HUGE = 100.0


def draw_bad(config: FaultsConfig, num_clients: int, seed: int) -> dict[NodeId, FaultKind]:
    """Who is bad, and how."""
    order = rng_for(seed, "bad").permutation(num_clients)[: round(config.bad * num_clients)]
    kinds: tuple[FaultKind, ...] = (
        ("nan", "huge", "flip") if config.kind == "mixed" else (config.kind,)
    )
    return {NodeId(client): kinds[at % len(kinds)] for at, client in enumerate(order.tolist())}


class FaultyEngine(EngineAround[Engine]):
    """Another engine, with clients that fail; clusters never do."""

    def __init__(
        self, engine: Engine, config: FaultsConfig, num_clients: int, seed: int = 0
    ) -> None:
        super().__init__(engine)
        self.config = config
        self.num_clients = num_clients
        self.bad = draw_bad(config, num_clients, seed)

    def train(self, tasks: Iterable[Task]) -> list[Outcome | None]:
        starts: list[Task | None] = []

        def those_who_answer() -> Iterator[Task]:
            for task in tasks:
                starts.append(None if self._drops_out(task) else replace(task, pulls=()))
                if starts[-1] is not None:
                    yield self._in_time(task)
                del task

        answers = iter(self.engine.train(those_who_answer()))
        return [None if task is None else self._spoiled(task, next(answers)) for task in starts]

    def _drops_out(self, task: Task) -> bool:
        is_client = task.site < self.num_clients
        return is_client and rng_for(task.seed, "dropout").random() < self.config.dropout

    def _in_time(self, task: Task) -> Task:
        rng = rng_for(task.seed, "straggle")
        if task.site >= self.num_clients or rng.random() >= self.config.straggle:
            return task
        return replace(task, batches=int(rng.integers(1, task.batches + 1)))

    def _spoiled(self, task: Task, outcome: Outcome | None) -> Outcome | None:
        if outcome is None or task.site not in self.bad:
            return outcome
        start, params = as_vector(task.start), outcome.params
        match self.bad[task.site]:
            case "nan":
                params = torch.full_like(params, float("nan"))
            case "huge":
                params = start + HUGE * (params - start)
            case _:
                params = start - (params - start)
        return replace(outcome, params=params)
