"""Methods under differential privacy: two federations with groups, at four budgets."""

from __future__ import annotations

from collections.abc import Mapping

from study.design.contenders import Contender
from study.design.settings import Overrides, Setting

EPSILONS = (8, 4, 2, 1)
DELTA = 1e-5
# Few steps on large batches of a small network: noise is added at every step, to every weight.
TRAINING: Overrides = {
    "rounds": 20,
    "warmup": 25,
    "model.name": "mlp",
    "model.hidden": 32,
    "local.batches": 5,
    "local.batch_size": 250,
    "local.optimizer": "sgd",
    "local.learning_rate": 1.0,
    "local.prior": True,
    "local.weight_decay": 0.0,
    "privacy.delta": DELTA,
    "privacy.clip": 1.0,
}
# Of every federation: its title, its data, and the number of its groups.
FEDERATIONS: Mapping[str, tuple[str, Overrides, int]] = {
    "turned": (
        "MNIST, 20 clients with 3,000 images each, in four rotations",
        {"data.num_clients": 20, "data.num_rotations": 4, "data.num_swaps": 1},
        4,
    ),
    "S4": (
        "MNIST, 24 clients with 2,500 images each, in four rotations and two label swaps",
        {"data.num_clients": 24, "data.num_rotations": 4, "data.num_swaps": 2},
        8,
    ),
}


def setting_name(federation: str, epsilon: float) -> str:
    """What a federation with a budget is called in rows."""
    return f"{federation}-e{epsilon:g}"


def _setting(federation: str, epsilon: float) -> Setting:
    title, data, num_groups = FEDERATIONS[federation]
    overrides = {
        **TRAINING,
        **data,
        "data.partition": "groups",
        "hypcluster.num_clusters": num_groups,
        "privacy.epsilon": float(epsilon),
    }
    name = setting_name(federation, epsilon)
    return Setting(name, f"{title}, epsilon = {epsilon:g}", overrides, (0.0,))


PRIVATE_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for federation in FEDERATIONS
    for setting in (_setting(federation, epsilon) for epsilon in EPSILONS)
}
QUICK_PRIVATE = ("turned-e8", "S4-e2")
OURS = "sofa"
PRIVATE: Mapping[str, Contender] = {
    label: Contender(label, label, {}, (), needs_groups=label in ("hypcluster", "oracle"))
    for label in (OURS, "local", "fedavg", "hypcluster", "oracle")
}


def scores_of(setting: str, label: str) -> Overrides:
    """HypCluster chooses by held-out losses, of all its models in every round."""
    if label != "hypcluster":
        return {}
    return {"privacy.scores": PRIVATE_SETTINGS[setting].overrides["hypcluster.num_clusters"]}
