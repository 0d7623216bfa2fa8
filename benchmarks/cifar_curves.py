"""Accuracy by round in pfl's benchmark of CIFAR-10, of pfl and of this package: a picture.

    python benchmarks/cifar_curves.py [FILE ...] [--out docs/images/cifar.svg]

FILE is what `pfl_cifar.py --data-dir DIR --rounds 1500 --out FILE` wrote;
`results/pfl-cifar-curves.json` by default. It also prints the last accuracy of each, and that of
the others at about the same round.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from sofa_fl.jobs.plotting import BLUE, ORANGE, VERMILION, drawing

ROOT = Path(__file__).resolve().parents[1]

TITLES = {"pfl": "pfl, FedAvg", "fedavg": "SOFA-FL's package, FedAvg", "sofa": "SOFA-FL"}
COLOURS = {"pfl": ORANGE, "fedavg": BLUE, "sofa": VERMILION}
Curve = list[tuple[int, float]]


def read_curves(*files: Path) -> dict[str, Curve]:
    """The accuracies of every contestant in the files, by round."""
    found: dict[str, Curve] = {}
    for file in files:
        contestants: Mapping[str, Mapping[str, Curve]] = json.loads(file.read_text("utf-8"))[
            "contestants"
        ]
        found.update({name: one["curve"] for name, one in contestants.items()})
    return found


def told(curves: Mapping[str, Curve]) -> str:
    """The last accuracy that all reached, and the last of each."""
    common = min(curve[-1][0] for curve in curves.values())
    lines = []
    for name, curve in curves.items():
        at, accuracy = min(curve, key=lambda point: abs(point[0] - common))
        lines.append(
            f"{TITLES[name]}: {100 * accuracy:.2f}% in round {at}, "
            f"{100 * curve[-1][1]:.2f}% in round {curve[-1][0]}"
        )
    return "\n".join(lines)


def draw(curves: Mapping[str, Curve], path: Path) -> None:
    """A line per contestant."""
    with drawing(path, 6.2, 3.4) as figure:
        axes = figure.subplots()
        for name, curve in curves.items():
            rounds, accuracies = zip(*curve)
            shown = [100 * accuracy for accuracy in accuracies]
            axes.plot(rounds, shown, color=COLOURS[name], label=TITLES[name], linewidth=1.4)
        axes.set_xlabel("round")
        axes.set_ylabel("accuracy on CIFAR-10's test images, in %")
        axes.legend(frameon=False, loc="lower right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = ROOT / "results" / "pfl-cifar-curves.json"
    parser.add_argument("files", nargs="*", type=Path, default=[default])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "cifar.svg")
    given = parser.parse_args()
    curves = read_curves(*given.files)
    draw(curves, given.out)
    print(told(curves))


if __name__ == "__main__":
    main()
