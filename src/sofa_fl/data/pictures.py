"""A folder of pictures as `Arrays`: a subfolder per class. Reading them needs Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sofa_fl.data.federated_data import Arrays
from sofa_fl.data.own import from_arrays
from sofa_fl.errors import DataError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def from_folder(
    folder: Path | str, *, size: tuple[int, int] = (28, 28), grey: bool = False
) -> Arrays:
    """All pictures in the subfolders of `folder`, one class per subfolder, in sorted order.

    Pictures are resized to `size` (height, width), and stay uint8 of shape (n, channels, height,
    width), in colour or `grey`; a network gets them scaled to [-1, 1].
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise DataError("reading pictures needs Pillow: pip install 'sofa-fl[pictures]'") from None
    folder = Path(folder)
    names = (
        sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    )
    if not names:
        raise DataError(f"{folder} must be a folder with one subfolder of pictures per class")
    pictures, labels = [], []
    for label, name in enumerate(names):
        files = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in ENDINGS)
        if not files:
            raise DataError(f"{folder / name} contains no picture ({', '.join(ENDINGS)})")
        for file in files:
            try:
                with Image.open(file) as image:
                    resized = image.convert("L" if grey else "RGB").resize(size[::-1])
            except OSError as error:
                raise DataError(f"cannot read the picture {file}: {error}") from None
            pixels = np.asarray(resized)
            pictures.append(pixels[None] if grey else np.moveaxis(pixels, -1, 0))
            labels.append(label)
    return from_arrays(np.stack(pictures), np.array(labels), scale=1 / 127.5, shift=-1.0)
