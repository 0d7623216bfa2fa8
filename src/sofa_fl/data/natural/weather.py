"""49 Australian weather stations from 2007 to 2017: does it rain tomorrow?

Read from `weather.npz`, which a user brings: the source (weatherAUS of the R package rattle.data)
is under the GPL and does not ship. The known hierarchy is that of the states and territories.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.natural.natural_records import Records
from sofa_fl.errors import DataError

FILE = "weather.npz"
ARRAYS = ("x", "y", "station", "date")
FIRST_YEARS = 2009  # the last year of the first period; few stations have days before it
STATES: Mapping[str, str] = {
    "ACT": "Canberra MountGinini Tuggeranong",
    "New South Wales": "Albury BadgerysCreek Cobar CoffsHarbour Moree Newcastle NorahHead Penrith "
    "Richmond Sydney SydneyAirport WaggaWagga Williamtown Wollongong",
    "Norfolk Island": "NorfolkIsland",
    "Northern Territory": "AliceSprings Darwin Katherine Uluru",
    "Queensland": "Brisbane Cairns GoldCoast Townsville",
    "South Australia": "Adelaide MountGambier Nuriootpa Woomera",
    "Tasmania": "Hobart Launceston",
    "Victoria": "Ballarat Bendigo Dartmoor Melbourne MelbourneAirport Mildura Nhil Portland Sale "
    "Watsonia",
    "Western Australia": "Albany PearceRAAF Perth PerthAirport SalmonGums Walpole Witchcliffe",
}
STATE_OF = {
    station: number
    for number, stations in enumerate(STATES.values())
    for station in stations.split()
}


def read_weather(given: tuple[Path, ...]) -> Records:
    """All days of all stations.

    Days that follow one another are alike, so whole months are scored or trained on.
    """
    arrays = _read(find_weather(given))
    names, owner = np.unique(arrays["station"], return_inverse=True)
    if strange := [name for name in names.tolist() if name not in STATE_OF]:
        raise DataError(
            f"{FILE} has a station {strange[0]!r} that is not one of the 49 known stations"
        )
    day = arrays["date"].astype("datetime64[D]")
    years = day.astype("datetime64[Y]").astype(np.int64) + 1970
    return Records(
        x=arrays["x"],
        y=arrays["y"].astype(np.int64),
        owner=owner,
        names=tuple(names.tolist()),
        num_outputs=2,
        truth=(tuple(STATE_OF[name] for name in names.tolist()),),
        unit=day.astype("datetime64[M]").astype(np.int64),
        period=np.maximum(years - FIRST_YEARS, 0),
        standardize="all",
    )


def find_weather(given: tuple[Path, ...]) -> Path:
    """The file in one of the folders given, or in a folder `natural` or `weather` in one."""
    places = [base / inner / FILE for base in given for inner in ("", "natural", "weather")]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(map(str, places)) or "none, because data.dir and SOFA_FL_DATA are not set"
    raise DataError(
        f"weather needs {FILE}, which does not ship with the package (looked in {looked}); pass "
        "--data-dir with the folder that contains it"
    )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:  # no pickle
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} must be an npz file with the arrays {', '.join(ARRAYS)} ({error}); replace it"
        ) from None
    if len({len(array) for array in arrays.values()}) > 1 or arrays["x"].ndim != 2:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(
            f"{path} must have one row per day in every array, got {shapes}; replace it"
        )
    return arrays
