"""33 languages: the next letter of a word from the six letters before it.

Word forms of the SIGMORPHON 2020 shared task 0 (UniMorph), in Latin script without diacritics; of
every word one position. The known hierarchy is that of the language families.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.natural.natural_records import Records

FILE = Path(__file__).parent / "files" / "languages.npz"
SYMBOLS = 28  # 0: before the word; 1 to 26: a to z; 27: the word ends
NAMES = {
    "ang": "Old English", "ast": "Asturian", "cat": "Catalan", "crh": "Crimean Tatar",
    "dak": "Dakota", "dan": "Danish", "deu": "German", "eng": "English", "est": "Estonian",
    "fin": "Finnish", "frm": "Middle French", "fur": "Friulian", "glg": "Galician",
    "isl": "Icelandic", "krl": "Karelian", "liv": "Livonian", "lld": "Ladin", "lug": "Luganda",
    "nld": "Dutch", "nno": "Nynorsk", "nob": "Bokmål", "nya": "Chewa", "olo": "Livvi",
    "sme": "Northern Sami", "sna": "Shona", "swa": "Swahili", "swe": "Swedish", "tgl": "Tagalog",
    "tuk": "Turkmen", "uig": "Uyghur", "uzb": "Uzbek", "vec": "Venetian", "vep": "Veps",
}  # fmt: skip


@lru_cache(maxsize=1)
def read_languages(_given: tuple[Path, ...] = ()) -> Records:
    """All samples that ship with the package; inputs are one-hot, six letters of 28 symbols."""
    with np.load(FILE, allow_pickle=False) as file:  # no pickle
        x, y, owner = file["x"], file["y"], file["client"]
        codes, families = file["language"].tolist(), file["family"]
    _, family = np.unique(families, return_inverse=True)
    return Records(
        x=one_hot(x),
        y=y.astype(np.int64),
        owner=owner.astype(np.int64),
        names=tuple(NAMES[code] for code in codes),
        num_outputs=SYMBOLS,
        truth=(tuple(family.tolist()),),
    )


def one_hot(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Letters (n, places) as zeros and ones (n, places x symbols)."""
    found = np.zeros((*x.shape, SYMBOLS), np.uint8)
    np.put_along_axis(found, x[..., None].astype(np.int64), 1, axis=-1)
    return found.reshape(len(x), -1)
