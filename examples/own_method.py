"""Your own method: FedAvg with momentum, which keeps part of the previous rounds' direction."""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits

import sofa_fl


@dataclass(frozen=True)
class State:
    """The state; its types determine how it is saved and restored, without any code of yours."""

    tree: sofa_fl.Tree
    model: torch.Tensor
    speed: torch.Tensor


@dataclass(frozen=True)
class Momentum:
    keep: float = 0.5

    def init(self, fed: sofa_fl.Federation) -> tuple[State, sofa_fl.Notes]:
        start = fed.initial()
        tree = sofa_fl.flat_tree(fed.clients, fed.first_id)
        return self.round(State(tree, start, torch.zeros_like(start)), fed)

    def round(self, state, fed):
        outcomes = fed.train([fed.task(client, state.model) for client in fed.clients])
        heard = sofa_fl.answered(fed.clients, outcomes)  # some clients may not answer
        losses = {client: outcome.losses for client, outcome in heard.items()}
        if not heard:
            return state, sofa_fl.Notes()
        mean = fed.mean({client: outcome.params for client, outcome in heard.items()})
        speed = self.keep * state.speed + (mean - state.model)
        return State(state.tree, state.model + speed, speed), sofa_fl.Notes(local_loss=losses)

    def view(self, state):
        served = dict.fromkeys(state.tree.clients, state.model)
        models = {state.tree.root: state.model}
        return sofa_fl.View(tree=state.tree, models=models, served=served)


digits = load_digits()
data = sofa_fl.split(sofa_fl.from_arrays(digits.images[:, None], digits.target, scale=1 / 16))
method = Momentum()
config = sofa_fl.Config(
    rounds=4,
    data=sofa_fl.DataConfig(name="digits", num_clients=6),
    model=sofa_fl.ModelConfig(name="mlp", hidden=32),
    local=sofa_fl.LocalConfig(batches=8, batch_size=32, learning_rate=5e-3),
)
result = sofa_fl.run(config, data=data, method=method)
print(f"mean accuracy {result.summary['client']['mean']:.2f}, {result.run}")
