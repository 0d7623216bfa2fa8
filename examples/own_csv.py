"""Your own CSV file and network: patients of six hospitals, each of which keeps its rows."""

from pathlib import Path

from torch import nn

import sofa_fl

table = sofa_fl.read_csv(Path(__file__).with_name("patients.csv"))
arrays = sofa_fl.from_columns(table, x=["age", "pressure", "sugar"], y="ill")
data = sofa_fl.deal(arrays, by=table["hospital"], standardize=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        return self.layers(x)


network = Net
local = sofa_fl.LocalConfig(batches=20, batch_size=20, learning_rate=1e-2)
config = sofa_fl.Config(rounds=8, local=local)
result = sofa_fl.run(config, data=data, network=network)
print(f"mean accuracy {result.summary['client']['mean']:.2f}, {result.run}")
