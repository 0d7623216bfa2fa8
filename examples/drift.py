"""Clients that change, by your own script: one changes its labels, one joins, one leaves."""

from sklearn.datasets import load_digits

import sofa_fl

upright, turned = sofa_fl.Concept(), sofa_fl.Concept(degrees=90)
renamed = sofa_fl.Concept(
    labels=(1, 0, 3, 2, 5, 4, 7, 6, 9, 8)
)  # neighbouring digits swap their labels

script = [
    sofa_fl.Phase(0, {0: upright, 1: upright, 2: upright, 3: turned, 4: turned, 5: turned}),
    # The labels of client 2 change; client 5 leaves, and client 6 joins.
    sofa_fl.Phase(4, {0: upright, 1: upright, 2: renamed, 3: turned, 4: turned, 6: turned}),
]

digits = load_digits()
arrays = sofa_fl.split(sofa_fl.from_arrays(digits.images[:, None], digits.target, scale=1 / 16))
settings = sofa_fl.DataConfig(name="digits", partition="iid")
data = sofa_fl.federate(settings, seed=0, arrays=arrays, script=script)
config = sofa_fl.Config(
    rounds=7,
    data=settings,
    model=sofa_fl.ModelConfig(name="mlp", hidden=32),
    local=sofa_fl.LocalConfig(batches=15, batch_size=32, learning_rate=1e-2),
)


def tell(event):
    """Your own observer, which is called with every event as it happens."""
    if event["event"] == "round":
        edits = ", ".join(edit["edit"] for edit in event["edits"]) or "-"
        print(f"round {event['round']}: {event['client']['mean']:.2f}, edits: {edits}")


result = sofa_fl.run(config, data=data, observers=[tell])
print(f"mean accuracy {result.summary['client']['mean']:.2f}, {result.run}")
