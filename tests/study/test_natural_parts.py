"""SOFA-FL without each of its parts on natural federations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from study.design.contenders import FULL
from study.design.natural_contenders import PARTS, PARTS_IN
from study.design.natural_plan import natural, parts
from study.design.run_plan import Scope
from study.pages.natural_page import natural_page
from study.pages.natural_parts import WITHOUT, without_tables
from study.pages.natural_tables import NATURAL
from study.rows.row_files import Row, add_rows
from tests.study.cases import row


def test_each_run_lacks_one_part_and_nothing_else() -> None:
    scope = Scope(settings=PARTS_IN, methods=tuple(PARTS), seeds=(0,))
    entries = parts(scope)
    assert len(entries) == len(PARTS) * len(PARTS_IN)
    for setting in PARTS_IN:
        here = {entry.method: entry for entry in entries if entry.setting == setting}
        (usual,) = natural(Scope(settings=(setting,), methods=("sofa",), seeds=(0,)), {})
        assert here[FULL].config == usual.config
        assert len({str(entry.config) for entry in here.values()}) == len(PARTS)
        for label, entry in here.items():
            assert dict(entry.overrides) == dict(PARTS[label])
            assert entry.config.data == usual.config.data


def runs(label: str, mean: Callable[[int], float], setting: str = "S6") -> list[Row]:
    return [row(label, s, mean(s), setting=setting, sharing=0.0) for s in range(5)]


def test_what_a_part_brings_is_told(tmp_path: Path) -> None:
    rows = runs(FULL, lambda s: 0.8 + 0.01 * s)
    rows += runs("no tree", lambda s: 0.6 + 0.0101 * s)
    rows += runs("no pulls", lambda s: 0.8 + 0.01 * s + 0.05 * (-1) ** s)
    rows += runs("own model only", lambda s: 0.85 + 0.0101 * s)
    text = without_tables(rows)
    assert "| SOFA-FL | 82.00 |" in text
    assert "| no tree | −19.98 ± " in text
    assert (
        "- The mean client is **worse** after Holm's correction with: no tree in S6 (−19.98)."
        in text
    )
    words = "own model only in S6 (+5.02)."
    assert f"- The mean client is **better** after Holm's correction with: {words}" in text
    assert without_tables([]) == ""
    add_rows(tmp_path / NATURAL, runs("sofa", lambda s: 0.8))
    assert "without each of its parts" not in natural_page(tmp_path)
    add_rows(tmp_path / WITHOUT, rows)
    page = natural_page(tmp_path)
    assert "## SOFA-FL without each of its parts" in page
    assert "python -m study natural_ablation" in page
    section = page[page.index("## SOFA-FL without") : page.index("## Hyperparameters")]
    assert "\n\n\n" not in section
