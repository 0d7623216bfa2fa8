"""The model store: models that are done with are freed, unless clients may need them again."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
from sofa_fl.methods.rules.config import SofaConfig
from sofa_fl.methods.rules.local_update import LocalUpdate
from sofa_fl.methods.rules.mixing import Mixing
from sofa_fl.methods.rules.state import ModelStore, adapt_membership

from sofa_fl.methods.sofa import Sofa
from sofa_fl.sharing import SharingConfig
from sofa_fl.topology.tree import NodeId
from tests.methods.cases import federation


def test_what_is_taken_is_gone_unless_kept() -> None:
    models = {NodeId(0): federation().initial(0), NodeId(1): federation().initial(1)}
    store = ModelStore(models, keep=False)
    store.take(NodeId(0))
    store.take(NodeId(0))
    assert list(store) == [1]
    kept = ModelStore(models, keep=True)
    kept.take(NodeId(0))
    assert list(kept) == [0, 1]
    assert list(models) == [0, 1], "the state that was given is not changed"


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_old_models_of_clients_are_freed_while_a_round_runs(
    participation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones, but for those that may be needed again: where not all clients are asked."""
    monkeypatch.setattr("sofa_fl.methods.rules.state.SMALL", 0)
    fed = replace(federation(), participation=participation)
    method = Sofa(SofaConfig(), SharingConfig(ratio=0))
    state, _ = method.init(fed.at(0))
    state = replace(state, mixing=Mixing())  # a client that goes on from its own model needs it
    old = [weakref.ref(state.params[client]) for client in fed.clients]
    state, _ = adapt_membership(state, method.config, fed.at(1))
    updates, _ = LocalUpdate(state, method.rules, method.config, fed.at(1)).run()
    assert len(updates) == round(participation * len(fed.clients) + 1e-9) or participation < 1
    alive = sum(model() is not None for model in old)
    assert alive == (0 if participation == 1 else len(old))
