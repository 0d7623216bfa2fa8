from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from sofa_fl.data.pictures import from_folder
from sofa_fl.errors import DataError


def fill(folder: Path) -> Path:
    for name, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (9, 7), colour).save(folder / name / "a.png")
        Image.new("RGB", (5, 5), colour).save(folder / name / "b.JPG")
    (folder / "cat" / "notes.txt").write_text("no picture")
    return folder


def test_a_subfolder_per_class(tmp_path: Path) -> None:
    arrays = from_folder(fill(tmp_path), size=(4, 6))
    assert (arrays.x.shape, arrays.x.dtype.name) == ((4, 3, 4, 6), "uint8")
    assert arrays.y.tolist() == [0, 0, 1, 1]
    assert arrays.x[0, :, 0, 0].tolist() == [255, 0, 0]
    assert arrays.x.max() * arrays.scale + arrays.shift == pytest.approx(1)
    assert from_folder(tmp_path, size=(4, 6), grey=True).x.shape == (4, 1, 4, 6)


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="one subfolder of pictures per class"):
        from_folder(tmp_path / "nowhere")
    fill(tmp_path)
    (tmp_path / "cat" / "c.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"cannot read the picture .*c\.png"):
        from_folder(tmp_path)
    (tmp_path / "bird").mkdir()
    with pytest.raises(DataError, match="bird contains no picture"):
        from_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'sofa-fl\[pictures\]'"):
        from_folder(tmp_path)
