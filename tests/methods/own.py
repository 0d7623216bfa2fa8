"""Methods that a user might write, to be named by their import path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from sofa_fl.engine.base import answered
from sofa_fl.federation import Federation
from sofa_fl.methods.method import Notes, View
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import Tree, flat_tree


@dataclass(frozen=True)
class MomentumConfig:
    """What can be set."""

    keep: Annotated[float, Interval(ge=0, lt=1)] = 0.5
    nesterov: bool = False


@dataclass(frozen=True)
class State:
    tree: Tree
    model: Tensor
    speed: Tensor


class Momentum:
    """FedAvg whose mean keeps some of its speed; not registered, and a plain class."""

    def __init__(self, config: MomentumConfig | None = None) -> None:
        self.config = config or MomentumConfig()

    def init(self, fed: Federation) -> tuple[State, Notes]:
        start = fed.initial()
        return self.round(State(flat_tree(fed.clients), start, torch.zeros_like(start)), fed)

    def round(self, state: State, fed: Federation) -> tuple[State, Notes]:
        outcomes = fed.train([fed.task(client, state.model) for client in fed.clients])
        heard = answered(fed.clients, outcomes)
        mean = fed.mean({client: outcome.params for client, outcome in heard.items()})
        speed = self.config.keep * state.speed + (mean - state.model)
        return State(state.tree, state.model + speed, speed), Notes()

    def view(self, state: State) -> View:
        served = dict.fromkeys(state.tree.clients, state.model)
        return View(tree=state.tree, models={state.tree.root: state.model}, served=served)


class SetMomentum(Momentum):
    """The same, in the form that takes its settings from a configuration."""

    def __init__(self, config: MomentumConfig, sharing: SharingConfig) -> None:
        super().__init__(config)
        self.sharing = sharing


class FedAvg(Momentum):
    """Has the name of one of ours."""


class Demanding(Momentum):
    """Cannot be made from a configuration."""

    def __init__(self, friend: Momentum) -> None:
        super().__init__(friend.config)


class Unfinished:
    """No method yet."""

    def init(self, fed: Federation) -> None: ...


def not_a_class() -> Momentum:
    return Momentum()
