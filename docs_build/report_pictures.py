"""The pictures of reports in the docs: `python docs_build/report_pictures.py FOLDER` makes all.

The runs go into FOLDER and take some minutes; those that are there already are not run again.
Chromium must be installed (`benchmarks/chromium.py`).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from chromium import MISSING, find_chromium, opened, started  # noqa: E402

IMAGES = ROOT / "docs" / "images"
GROUPS = ["data.partition=groups", "sharing.ratio=0", "model.name=mlp"]
TUTORIAL = [*GROUPS, "data.num_clients=24", "data.num_train=12000", "data.num_test=3000"]
FORTY_EIGHT = [*GROUPS, "data.num_clients=48", "data.num_train=6000", "data.num_test=3000"]
THOUSAND = [*GROUPS, "data.num_clients=1000", "model.hidden=32", "local.batch_size=20"]
CHANGE = ["data.num_swaps=1", "data.scenario.at=5"]
RUNS = {  # by folder: rounds and settings
    "groups": (10, TUTORIAL),
    "groups-fedavg": (10, [*TUTORIAL, "method=fedavg"]),
    "swap": (10, [*TUTORIAL, *CHANGE, "data.scenario.name=swap"]),
    "churn": (10, [*TUTORIAL, *CHANGE, "data.scenario.name=churn"]),
    "deep": (5, [*FORTY_EIGHT, "sofa.dmac.increase=1.03"]),
    "sofa": (5, FORTY_EIGHT),
    "fedavg": (5, [*FORTY_EIGHT, "method=fedavg"]),
    "hypcluster": (5, [*FORTY_EIGHT, "method=hypcluster", "hypcluster.num_clusters=8"]),
    "thousand": (20, [*THOUSAND, "local.batches=5", "score_levels=false"]),
}


@dataclass(frozen=True)
class Picture:
    """A page of one or several runs, at a round (the last by default), in a window."""

    name: str
    runs: tuple[str, ...]
    size: tuple[int, int]
    round: int | None = None


PICTURES = (
    Picture("tutorial-tree", ("groups",), (1080, 572)),
    Picture("tutorial-compare", ("groups", "groups-fedavg"), (1080, 676)),
    Picture("tutorial-swap", ("swap",), (1080, 520), 5),
    Picture("tutorial-churn", ("churn",), (1080, 520), 5),
    Picture("report", ("deep",), (1280, 1020), 1),
    Picture("report-1000", ("thousand",), (1280, 800)),
    Picture("report-phone", ("groups",), (390, 844)),
    Picture("comparison", ("sofa", "fedavg", "hypcluster"), (1280, 1000)),
)


def run_all(folder: Path) -> None:
    """Make the runs that are missing."""
    for name, (rounds, settings) in RUNS.items():
        if (folder / name / "report.html").exists():
            continue
        words = [word for setting in settings for word in ("--set", setting)]
        command = ["run", "--quiet", "--rounds", str(rounds), "--out", str(folder / name), *words]
        subprocess.run([sys.executable, "-m", "sofa_fl", *command], check=True)


def draw_all(folder: Path) -> None:
    """Write the reports again, and take their pictures."""
    from sofa_fl.report.page import write_report

    path = find_chromium()
    if path is None:
        sys.exit(MISSING)
    with started(path) as browser:
        for picture in PICTURES:
            several = len(picture.runs) > 1
            out = folder / f"{picture.name}.html" if several else None
            page_file = write_report([folder / run for run in picture.runs], out)
            with opened(browser, page_file.as_uri(), size=picture.size) as page:
                if picture.round is not None:
                    page.locator("#slider").fill(str(picture.round))
                    page.locator("#slider").blur()
                page.wait_for_timeout(300)
                page.screenshot(path=IMAGES / f"{picture.name}.png")


if __name__ == "__main__":
    run_all(Path(sys.argv[1]))
    draw_all(Path(sys.argv[1]))
