"""Four hospitals: does a patient have a heart disease?

The data are UCI's, and the protocol is that of FLamby's Fed-Heart-Disease: the columns slope, ca
and thal are left out, then patients with blanks; cp and restecg are dummy variables without the
first; 66% of a hospital's patients are trained on, by a fixed stratified split; inputs are
standardized per hospital. There is no known hierarchy.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.natural.natural_records import Records

FOLDER = Path(__file__).parent / "files" / "heart"
HOSPITALS = {
    "cleveland": "Cleveland",
    "hungarian": "Budapest",
    "switzerland": "Zurich and Basel",
    "va": "Long Beach",
}
NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
DUMMIES = {"cp": (2, 3, 4), "restecg": (1, 2)}  # the first, 1 and 0, is where all are 0
TRAIN, STATE = 0.66, 43  # FLamby's split


@lru_cache(maxsize=1)
def read_heart(_given: tuple[Path, ...] = ()) -> Records:
    """The patients of all hospitals, which ship with the package."""
    parts = [read_hospital(FOLDER / f"{name}.csv") for name in HOSPITALS]
    return Records(
        x=np.concatenate([x for x, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        owner=np.repeat(np.arange(len(parts)), [len(y) for _, y in parts]),
        names=tuple(HOSPITALS.values()),
        num_outputs=2,
        is_test=np.concatenate([flamby_split(y) for _, y in parts]),
        standardize="each",
    )


def read_hospital(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The 13 inputs and the label of every patient without a blank in a column that is used."""
    used = (*NUMBERS, *DUMMIES, "num")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if all(row[name] for name in used)]
    inputs = [
        [float(row[name]) for name in NUMBERS]
        + [float(int(row[name]) == value) for name, values in DUMMIES.items() for value in values]
        for row in rows
    ]
    return np.array(inputs), np.array([int(int(row["num"]) > 0) for row in rows])


def flamby_split(y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which patients of a hospital are scored; as FLamby draws them, with scikit-learn."""
    from sklearn.model_selection import train_test_split

    is_stratified = min(np.bincount(y, minlength=2)) > 2
    _, test = train_test_split(
        np.arange(len(y)),
        test_size=1 - TRAIN,
        train_size=TRAIN,
        random_state=STATE,
        stratify=y if is_stratified else None,
    )
    is_test = np.zeros(len(y), bool)
    is_test[test] = True
    return is_test
