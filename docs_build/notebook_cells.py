# %% [markdown]
# # A federation in a notebook
#
# Twelve clinics in two countries predict which patients come back.
# The reasons differ between the countries, and the method is not told that there are two.

# %%
import numpy as np

import sofa_fl

rng = np.random.default_rng(0)
norway = ["oslo", "bergen", "hamar", "bodø", "molde", "voss"]
italy = ["rome", "milan", "turin", "parma", "lucca", "siena"]
clinic = rng.integers(0, 12, 6000)
x = rng.normal(size=(6000, 8)).astype("float32")
north, south = x[:, 0] + x[:, 1] > 0, x[:, 0] - x[:, 2] > 0
y = np.where(clinic < 6, north, south).astype(int)

data = sofa_fl.deal(sofa_fl.from_arrays(x, y), by=np.array(norway + italy)[clinic])
len(data.clients), data.names[:4]

# %% [markdown]
# A run needs only the data; the configuration here makes it short.
# A notebook shows the result as a picture of the tree and a table of the worst clinics.

# %%
local = sofa_fl.LocalConfig(batches=20, batch_size=20, learning_rate=5e-3)
sharing = sofa_fl.SharingConfig(ratio=0)  # no sample leaves its clinic
config = sofa_fl.Config(rounds=6, local=local, sharing=sharing, engine="sequential")
result = sofa_fl.run(config, data=data, progress=False)
result

# %% [markdown]
# This shows what happened to the tree in every round; round 0 is the warm-up.

# %%
for record in result.rounds():
    told = "; ".join(record.told) or "no edit"
    print(f"round {record.round}: mean {record.mean:.1%}, worst {record.worst:.1%}, {told}")

# %% [markdown]
# Is the tree worth it?
# With the same budget, we compare it with one model for all (FedAvg) and with local training:

# %%
config = sofa_fl.Config(
    rounds=6, local=local, sharing=sharing, engine="sequential", out="runs/compare"
)
sofa_fl.compare(["sofa", "fedavg", "local"], config, data=data, seeds=[0, 1, 2], progress=False)

# %% [markdown]
# The model that a clinic uses takes raw rows.
# `result.export("oslo.onnx", client="oslo")` writes it for other programs.

# %%
print(result.predict(x[:3], client="oslo").argmax(axis=1), "in Oslo")
print(result.predict(x[:3], client="rome").argmax(axis=1), "in Rome")
