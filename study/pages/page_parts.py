"""What the pages with results have in common: where rows come from, and how they were made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sofa_fl.experiment.storage.disk import write_text
from study.design.captions import CAPTIONS
from study.design.contenders import CHOSEN
from study.pages.markdown import listed, seeds_told
from study.rows.row_files import Row


def write_page(page: Path, text: str) -> Path:
    """Write a page, and the folder that it is in."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)
    return page


def made_from(out: Path) -> str:
    """Where a page comes from."""
    return (
        f"`python -m study docs`, in a checkout, generates this page from `{out.name}/*.json`; do "
        "not edit it.\n"
        "Below a table is what made its rows: precision, engine, and the version and digest of the "
        "code.\n"
    )


def rate_fell(whose: str) -> str:
    """A sentence on rows that were made before the learning rate became constant."""
    return (
        f"When these rows were made, the learning rate of {whose} fell along a cosine to 0.3 of "
        "its first value; it is constant now.\n"
    )


def command(target: str, rows: Sequence[Row], given: Mapping[str, Any], more: str = "") -> str:
    """The command that makes these rows again; `given` are overrides that all runs have."""
    seeds = ",".join(map(str, sorted({row["seed"] for row in rows})))
    return (
        f"```\npython -m study {target} --seeds {seeds}{as_options(given)}{more} --replace\n```\n"
    )


def in_common(given: Mapping[str, Any]) -> str:
    """A sentence on the overrides that all runs have, if there are any."""
    words = [f"`{key}={value}`" for key, value in given.items()]
    return f"All runs have {listed(words)}.\n" if words else ""


def engines_of(rows: Sequence[Row]) -> str:
    return f"Engine: {listed(sorted({row['engine'] for row in rows}))}.\n"


def as_options(overrides: Mapping[str, Any]) -> str:
    """` --set rounds=3`: overrides as options of a command."""
    return "".join(f" --set {key}={value}" for key, value in overrides.items())


def common(rows: Sequence[Row], but: Collection[str] = CHOSEN) -> dict[str, Any]:
    """The overrides that all runs have in common, without hyperparameters."""
    first = rows[0]["overrides"]
    return {
        key: value
        for key, value in first.items()
        if key not in but and all(row["overrides"].get(key) == value for row in rows)
    }


def over(rows: Sequence[Row]) -> str:
    """The seeds that a number is a mean over, and what ± means."""
    seeds = sorted({row["seed"] for row in rows})
    if len(seeds) == 1:
        return f"Seed {seeds[0]} alone: no intervals."
    return f"Numbers are means over {seeds_told(seeds)}; ± is a 95% interval."


def picture(pages: Path, *names: str) -> Iterator[str]:
    """The figures whose files are there, with their captions."""
    for name in names:
        if (pages / "images" / f"{name}.svg").exists():
            caption = CAPTIONS[name]
            short = caption.split(". ")[0].removesuffix(".")
            yield f"![{short}](images/{name}.svg)\n\n*{caption}*\n"


def has_setting(rows: Sequence[Row], setting: str) -> bool:
    return any(row["setting"] == setting for row in rows)
