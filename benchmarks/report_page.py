"""How large the report is and how soon it is open, in a real Chromium; or a picture of a page.

python benchmarks/report_page.py                                  # 20, 200 and 1,000 clients
python benchmarks/report_page.py --shoot report.html --to x.png   # one picture
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from chromium import MISSING, Scheme, find_chromium, opened, started
from playwright.sync_api import Browser
from synthetic_run import write_synthetic

from sofa_fl.report.page import write_report

OPENINGS = 5


def measure(browser: Browser, folder: Path, num_clients: int, rounds: int) -> str:
    """One row: seconds to write, megabytes, seconds until drawn (median of several)."""
    run = write_synthetic(folder / str(num_clients), num_clients, rounds)
    began = time.perf_counter()
    file = write_report([run])
    wrote = time.perf_counter() - began
    took = []
    for _ in range(OPENINGS):
        with opened(browser, file.as_uri()) as page:
            took.append(page.evaluate("performance.now()") / 1000)
    opening = sorted(took)[OPENINGS // 2]
    return f"{num_clients:>8,} {wrote:>9.2f} {file.stat().st_size / 1e6:>7.2f} {opening:>9.2f}"


def shoot(browser: Browser, args: argparse.Namespace) -> None:
    width, height = (int(number) for number in args.size.split("x"))
    with opened(
        browser, args.shoot.resolve().as_uri(), size=(width, height), scheme=args.scheme
    ) as page:
        if args.frame is not None:
            page.locator("#slider").fill(str(args.frame))
            page.locator("#slider").blur()
        if args.hover:
            page.locator(args.hover).first.hover()
        if args.card:
            page.locator(f"#{args.card}").screenshot(path=args.to)
        else:
            page.screenshot(path=args.to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", default="20,200,1000", help="how many, with commas")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shoot", type=Path, metavar="PAGE", help="take a picture of this instead")
    parser.add_argument("--to", type=Path, metavar="PNG")
    parser.add_argument("--size", default="1280x800")
    parser.add_argument("--scheme", choices=get_args(Scheme), default="light")
    parser.add_argument("--frame", type=int, metavar="N", help="where the slider stands")
    parser.add_argument("--hover", metavar="SELECTOR", help="what the mouse is over")
    parser.add_argument("--card", metavar="ID", help="only this card")
    args = parser.parse_args()
    path = find_chromium()
    if path is None:
        sys.exit(MISSING)
    with started(path) as browser, tempfile.TemporaryDirectory() as folder:
        if args.shoot:
            shoot(browser, args)
            return
        print(f"{'clients':>8} {'s to write':>9} {'MB':>6} {'s to open':>9}")
        for num_clients in map(int, args.clients.split(",")):
            print(measure(browser, Path(folder), num_clients, args.rounds), flush=True)


if __name__ == "__main__":
    main()
