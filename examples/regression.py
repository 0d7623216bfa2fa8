"""Regression: how a disease progresses (scikit-learn's diabetes data), in clinics by age."""

import numpy as np
from sklearn.datasets import load_diabetes
from torch import nn

import sofa_fl

x, y = load_diabetes(return_X_y=True)
x, y = 20 * x, (y - y.mean()) / y.std()  # the columns have a standard deviation of about 0.05


def clinic(arrays):
    """Your own partition: five clinics, from the youngest fifth of the patients to the oldest."""
    age = arrays.x[:, 0]
    return np.searchsorted(np.quantile(age, [0.2, 0.4, 0.6, 0.8]), age)


data = sofa_fl.deal(sofa_fl.from_arrays(x, y), by=clinic)


def network():
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))


def mae(outputs, targets):
    """Your own metric: the mean absolute error of the model that a client uses, in every round."""
    return np.abs(outputs - targets).mean()


def ranks(outputs, targets):
    """Another metric: is the order of the patients right (Spearman's correlation)?"""
    return np.corrcoef(outputs.argsort().argsort(), targets.argsort().argsort())[0, 1]


metrics = {"mae": mae, "ranks": ranks}
local = sofa_fl.LocalConfig(batches=10, batch_size=32, learning_rate=5e-3)
config = sofa_fl.Config(rounds=6, local=local)
result = sofa_fl.run(config, data=data, network=network, metrics=metrics)

r2, own = result.summary["client"]["mean"], result.summary["metrics"]
error, order = own["mae"]["mean"], own["ranks"]["mean"]
print(f"R2 {r2:.2f}, mean absolute error {error:.2f}, ranks {order:.2f}, {result.run}")
