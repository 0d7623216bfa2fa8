"""Write idx files, as `data/datasets.py` reads them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sofa_fl.data.datasets import DTYPES


def write_idx(path: Path, values: NDArray[Any]) -> None:
    """Write an array as an idx file, gzipped where the name ends in .gz."""
    codes = {np.dtype(dtype): code for code, dtype in DTYPES.items()}
    dtype = values.dtype.newbyteorder(">")
    header = bytes([0, 0, codes[dtype], values.ndim]) + np.array(values.shape, ">u4").tobytes()
    content = header + values.astype(dtype).tobytes()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
