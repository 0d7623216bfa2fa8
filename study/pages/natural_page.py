"""`docs/natural.md`, on federations that nobody made for this method; from `results/` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from study.design.natural_contenders import FIXED, NATURALS
from study.design.natural_contenders import PARTS as PARTS_OF
from study.design.natural_settings import NATURAL_SETTINGS
from study.pages.made_by import made_by
from study.pages.markdown import NOTHING, listed, seeds_told
from study.pages.natural_choices import TRIED, chosen_table
from study.pages.natural_parts import WITHOUT, without_tables
from study.pages.natural_tables import (
    NATURAL,
    behind,
    in_short,
    natural_tables,
    published,
    standing,
)
from study.pages.page_parts import (
    command,
    common,
    engines_of,
    has_setting,
    in_common,
    made_from,
    over,
    rate_fell,
)
from study.rows.row_files import Row, read_rows


def natural_page(out: Path) -> str:
    """All of `docs/natural.md`."""
    return "\n".join(_sections(out))


def _sections(out: Path) -> Iterator[str]:
    rows = read_rows(out / NATURAL)
    yield "# Natural federations\n"
    yield made_from(out)
    yield f"## What is compared\n\n{FEDERATIONS}\n{WHO}"
    if not rows:
        yield "There are no results yet: `python -m study natural` makes them.\n"
        return
    yield f"## What was run\n\n{_what_was_run(rows)}"
    yield f"## In short\n\n{in_short(rows)}\n{made_by(rows)}\n{PLAIN}{_fewer_seeds(rows)}"
    yield f"{behind(rows)}\n{standing(rows)}"
    if has_setting(rows, "heart"):
        yield f"## Beside FLamby's numbers\n\n{FLAMBY}{published(rows)}"
    if without := without_tables(parts := read_rows(out / WITHOUT)):
        yield f"## SOFA-FL without each of its parts\n\n{PARTS}\n{_parts_run(parts)}\n{without}"
    yield _chosen(out)
    yield f"## Every federation\n\n{READING}\n{natural_tables(rows)}"


def _chosen(out: Path) -> str:
    """The baselines' own parameters, and how they were chosen."""
    heading = "## Hyperparameters\n\n"
    if not (made := chosen_table(out)):
        return f"{heading}All methods have their defaults; `natural_sweep` was not run.\n"
    seeds = sorted({row["seed"] for row in read_rows(out / TRIED)})
    return (
        f"{heading}Baselines with a parameter of their own have the best of those tried in each "
        f"federation, by the mean client on validation data of {seeds_told(seeds)} (a sixth of the "
        f"training samples; `{TRIED}` has every run).\n"
        f"{NOTHING} stands for the default.\nNothing was chosen for SOFA-FL in any single "
        f"federation.\n\n{made}"
    )


FEDERATIONS = """\
Three datasets come with natural clients; [Natural federations](data.md#natural-federations) describes them.

- `languages-2000` and `languages-300`: 33 languages with up to 2,000 and 300 samples each.
  The network is an MLP with hidden layers of 256 and 128; there are 25 batches of 50, and 15 of 20.
- `weather`: 49 weather stations; an MLP with hidden layers of 64 and 32, 20 batches of 50.
- `years`: the same stations, but the years come in order: first the days until 2009, and from round 4 on a new year every two rounds.
- `heart`: four hospitals; logistic regression, 100 batches of 4, and 15 rounds with the warm-up as the first.

The others are made from MNIST and cover cases that the benchmark does not; in all but S7 the network is the MLP with a hidden layer of 200.

- `S6`: 100 clients with 60 images each, in four rotations; 10 batches of 20.
- `S7`: 19 similar clients and one whose labels are all different; the paper's CNN, 25 batches of 100.
- `S8`: 200 clients with 60 images each in S4's eight groups, with only 5 batches of 20.
- `S9-25`, `S9-100` and `S9-500`: four regions with two sites each and three clients at each site, nested as in S4 but compatible.
  Images are rotated by another 45° from region to region, and by another 15° from site to site; labels keep their meaning.
  A client has 25, 100 or 500 images, and trains 10 batches of 20.
"""

WHO = """\
All methods have the same samples, budget and network.
All have a learning rate of 2e-3 (`heart`: 1e-3), and the class-mix correction, for which the `+` in a baseline's name stands.
SCAFFOLD corrects gradients, so it trains by plain SGD, by default at a rate of 0.1.
No samples are shared, because sharing is not part of this comparison.
The defaults of SOFA-FL are the same in all federations.
HypCluster is given the number of true groups (families, states, sites), and the oracle the groups themselves; neither takes part if no groups are known.
*DMAC every round* builds a new tree in every round, and *no tree* is SOFA-FL with a single cluster.
Engine *sequential* is one client after the other on a CPU, and *stacked* is a GPU.
"""

PARTS = """\
In four of these federations, we ran SOFA-FL without one of its parts at a time.
With *always from the own model*, a client starts every round from its own model instead of the one that it serves.
*Own model only* serves a client's own model instead of the blend of its path.
"""

READING = """\
*Mean* and *worst* are over the clients' own test samples, in %, after the last round.
*Groups* shows how well the tree agrees with the true groups (families, states, rotations, regions and sites), on the level where it agrees least.
Differences are SOFA-FL's number minus the other's, seed by seed, in points.
In the table of a federation their 95% intervals (Student's t) are after Holm's correction for all differences of a column.
So they are wider than those of *In short* and of the tables over all rounds, which are plain.
"""

PLAIN = """\
Intervals in this table are plain 95% intervals (Student's t) of one comparison each; those in the tables of *Every federation* are after Holm's correction.
"""

FEWER_SEEDS = """\
Some methods were run with fewer seeds than others; differences cover the seeds that both methods have, and a method's own numbers cover all of its seeds.
"""

FLAMBY = """\
FLamby (Fed-Heart-Disease) publishes the mean accuracy over the four hospitals, for 5 seeds.
FedAvg has 68.5, each hospital on its own 73.0, FedYogi 73.1, and all data pooled 73.5.
Patients, inputs, split, model, optimizer, learning rate and batches are the same here.
There are 15 rounds of 100 batches, as in FLamby.
Two things differ: a client holds out 5% of its training samples, and inputs are standardized with the training samples of each hospital.
"""


def _fewer_seeds(rows: Sequence[Row]) -> str:
    """What differences cover, where some methods were run with fewer seeds than others."""
    seeds = Counter((row["setting"], row["method"]) for row in rows)
    return f"{FEWER_SEEDS}\n" if len(set(seeds.values())) > 1 else ""


def _parts_run(rows: Sequence[Row]) -> str:
    given = common(rows, {key for part in PARTS_OF.values() for key in part})
    made = command("natural_ablation", rows, given, " --data-dir DIR")
    fell = rate_fell("SOFA-FL, whole and in parts,")
    return f"{over(rows)}\n{engines_of(rows)}{fell}{in_common(given)}\n{made}"


def _what_was_run(rows: Sequence[Row]) -> str:
    fixed = {key for of in FIXED.values() for key in of}
    fixed |= {key for c in NATURALS.values() for values in c.grid for key in values}
    given = common(rows, fixed)
    missing = [f"`{name}`" for name in NATURAL_SETTINGS if not has_setting(rows, name)]
    left = f"Not run yet: {listed(missing)}.\n" if missing else ""
    return (
        f"{over(rows)}\n{engines_of(rows)}{rate_fell('all methods with the correction')}"
        f"{in_common(given)}{left}\n"
        f"{command('natural', rows, given, ' --data-dir DIR')}\n"
        "`DIR` has `weather.npz`; without it, use `--settings` to leave out the federations that need it.\n"
    )
