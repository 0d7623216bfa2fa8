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


local = sofa_fl.LocalConfig(batches=10, batch_size=32, learning_rate=5e-3)
config = sofa_fl.Config(rounds=6, local=local)
result = sofa_fl.run(config, data=data, network=network)

# An own metric, of what every client uses: the mean absolute error.
errors = []
for client, rows in enumerate(data.clients):
    served = sofa_fl.predict(
        result.run, data.test.x[rows.test], node=f"client:{client}", network=network
    )
    errors.append(np.abs(served[:, 0] - data.test.y[rows.test]).mean())
r2, rmse = result.summary["client"]["mean"], result.summary["rmse"]
print(f"R2 {r2:.2f}, RMSE {rmse:.2f}, mean absolute error {np.mean(errors):.2f}, {result.run}")
