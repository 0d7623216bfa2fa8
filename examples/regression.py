"""Regression: how a disease goes on (scikit-learn's diabetes set), for clinics by patients' age."""

import numpy as np
from sklearn.datasets import load_diabetes
from torch import nn

import sofa_fl

x, y = load_diabetes(return_X_y=True)
x, y = 20 * x, (y - y.mean()) / y.std()  # columns come with a deviation of about 0.05


def clinic(arrays):
    """Own partition: five clinics, from the youngest fifth of the patients to the oldest."""
    age = arrays.x[:, 0]
    return np.searchsorted(np.quantile(age, [0.2, 0.4, 0.6, 0.8]), age)


data = sofa_fl.deal(sofa_fl.from_arrays(x, y), by=clinic)


def network():
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))


def mae(outputs, targets):
    """Own metric: the mean absolute error of what a client uses, in every round."""
    return np.abs(outputs - targets).mean()


def ranks(outputs, targets):
    """Another: does it at least know who will be worse off than whom (Spearman's correlation)?"""
    return np.corrcoef(outputs.argsort().argsort(), targets.argsort().argsort())[0, 1]


metrics = {"mae": mae, "ranks": ranks}
local = sofa_fl.LocalConfig(batches=10, batch_size=32, learning_rate=5e-3)
config = sofa_fl.Config(rounds=6, local=local)
result = sofa_fl.run(config, data=data, network=network, metrics=metrics)

r2, own = result.summary["client"]["mean"], result.summary["metrics"]
error, order = own["mae"]["mean"], own["ranks"]["mean"]
print(f"R2 {r2:.2f}, mean absolute error {error:.2f}, ranks {order:.2f}, {result.run}")
