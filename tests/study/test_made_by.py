"""Below every table stands what made its rows: group by group, as the rows say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from study.pages.made_by import by_precision, made_by
from study.pages.results_page import compact_table, results_page
from study.rows.row_files import Row, add_rows
from tests.study.cases import row, rows

ROOT = Path(__file__).parent.parent.parent
NEW = {"version": "0.1.0", "code": "72dbb8b1630a71cf", "precision": "float32"}
OLD = {"local.precision": "bf16"}
PAGES = {
    "README.md": ("benchmark", "natural"),
    "docs/results.md": ("benchmark", "table1", "table2", "ablation", "sweep"),
    "docs/natural.md": ("natural",),
    "docs/drift.md": ("drift", "faults", "drift_sweep"),
    "docs/tree.md": ("tree",),
    "docs/disclosure.md": ("disclosure",),
    "docs/privacy.md": ("privacy",),
    "docs/adapters.md": ("adapters", "adapter_rates"),
}


def groups(found: Iterable[Row]) -> set[tuple[str, str, str]]:
    """Precision, engine and code of all rows, read from the rows and not by the code under test."""
    return {
        (
            r.get("provenance", {}).get("precision")
            or {**r["overrides"], **r.get("extra", {})}["local.precision"],
            r.get("engine", "engine not recorded"),
            f"code {r['provenance']['code'][:8]}"
            if "provenance" in r
            else "before code was recorded",
        )
        for r in found
    }


def captions(text: str) -> Sequence[str]:
    """Captions of tables, each in one line."""
    found = re.findall(r"^(?:All rows|Rows): .*?\.$", text, re.MULTILINE | re.DOTALL)
    return [" ".join(caption.split()) for caption in found]


def test_every_group_is_named_with_its_methods() -> None:
    ours = rows("sofa", [0.9, 0.9], provenance=NEW)
    theirs = [row(label, overrides=OLD) for label in ("fedavg", "ditto")]
    assert made_by(ours) == "All rows: float32, sequential, version 0.1.0, code 72dbb8b1.\n"
    (told,) = captions(made_by([*theirs, *ours]))
    assert told == (
        "Rows: SOFA-FL (2 rows): float32, sequential, version 0.1.0, code 72dbb8b1; FedAvg and "
        "Ditto (2 rows, seed 0): bf16, sequential, before code was recorded."
    )
    older = row("fedavg", 1, provenance={"code": "f" * 16, "precision": "tf32"}, engine="stacked")
    assert (
        "FedAvg (1 row, seed 1): tf32, stacked, code ffffffff"
        in captions(made_by([*ours, *theirs, older]))[0]
    )
    assert made_by([row("sofa")]).startswith("All rows: precision not recorded, sequential, before")
    assert made_by([]) == ""


def test_of_many_methods_the_number_is_told() -> None:
    labels = ["fedavg", "ditto", "cfl", "local", "fedprox", "apfl", "fedrep"]
    theirs = [row(label, overrides=OLD) for label in labels]
    (told,) = captions(made_by([row("sofa", provenance=NEW), *theirs]))
    assert "; all other methods (7 rows): bf16" in told
    (told,) = captions(made_by([row("sofa", provenance=NEW), row("fedala"), *theirs]))
    assert "; 7 other methods (7 rows): bf16" in told


def test_a_page_of_mixed_rows_says_so_and_what_its_command_does_not_repeat(tmp_path: Path) -> None:
    ours = rows("sofa", [0.9, 0.8], provenance=NEW)
    theirs = rows("fedavg", [0.7, 0.7], overrides=OLD)
    add_rows(tmp_path / "benchmark.json", [*ours, *theirs])
    text = results_page(tmp_path, tmp_path)
    mixed = [told for told in captions(text) if "float32" in told and "bf16" in told]
    assert len(mixed) == 2  # in short, and in full
    assert compact_table([*ours, *theirs]) in text
    assert "The command for benchmark makes all rows in float32 by the present code" in text
    add_rows(tmp_path / "benchmark.json", rows("fedavg", [0.7, 0.7], provenance=NEW))
    assert "The command for benchmark" not in results_page(tmp_path, tmp_path)


def test_what_another_precision_changes_is_told() -> None:
    ours = rows("sofa", [0.9, 0.92], provenance=NEW)
    again = rows("SOFA-FL", [0.91, 0.9], overrides=OLD)
    told = by_precision(ours, again)
    assert "2 of SOFA-FL's runs were also made in bf16" in told
    assert "up to 0.50 points for the mean client and 0.50 for the worst" in told
    assert "single seeds by up to 2.00 and 2.00" in told
    assert by_precision(ours, rows("SOFA-FL", [0.9, 0.92], provenance=NEW)) == ""


def test_sofa_is_not_called_our_default_where_it_shares_without_a_cap(tmp_path: Path) -> None:
    ours = rows("sofa", [0.9, 0.8], disclosed=0.89)
    add_rows(tmp_path / "table1.json", [*ours, *rows("sofa_paper", [0.7, 0.7])])
    text = results_page(tmp_path, tmp_path)
    assert "*SOFA-FL* is our default but for `sharing.max_disclosure=1`" in text
    assert "89% of a client's samples have left it" in text
