"""A folder of pictures with a subfolder per class; this script first draws the pictures."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import nn

import sofa_fl

SHAPES = ("bar", "circle", "square")


def draw(folder, number=60, size=20):
    rng = np.random.default_rng(0)
    for name in SHAPES:
        (folder / name).mkdir(parents=True)
        for index in range(number):
            image = Image.fromarray(rng.integers(0, 90, (size, size, 3)).astype(np.uint8))
            left, top = (int(value) for value in rng.integers(1, 7, 2))
            colour = tuple(int(value) for value in rng.integers(120, 256, 3))
            pen = ImageDraw.Draw(image)
            if name == "circle":
                pen.ellipse((left, top, left + 11, top + 11), fill=colour)
            else:
                height = 11 if name == "square" else 3
                pen.rectangle((left, top, left + 11, top + height), fill=colour)
            image.save(folder / name / f"{index}.png")


folder = Path("pictures")
if not folder.exists():
    draw(folder)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, len(SHAPES)),
    )  # fmt: skip


data = sofa_fl.split(
    sofa_fl.from_folder(folder, size=(16, 16))
)  # assigned to clients by config.data
config = sofa_fl.Config(
    rounds=4,
    data=sofa_fl.DataConfig(name="pictures", num_clients=4, min_samples=5, holdout=0.1),
    local=sofa_fl.LocalConfig(batches=8, batch_size=20),
)
result = sofa_fl.run(config, data=data, network=network)
print(f"mean accuracy {result.summary['client']['mean']:.2f}, {result.run}")
