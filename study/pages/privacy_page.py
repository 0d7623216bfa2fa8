"""`docs/privacy.md`, on what differential privacy costs; from `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from study.pages.page_parts import command, common, engines_of, made_from, over, picture
from study.pages.privacy_tables import PRIVACY, privacy_tables, verdicts
from study.rows.row_files import Row, read_rows


def privacy_page(out: Path, pages: Path) -> str:
    """All of `docs/privacy.md`."""
    return "\n".join(_sections(out, pages))


def _sections(out: Path, pages: Path) -> Iterator[str]:
    rows = read_rows(out / PRIVACY)
    yield "# Differential privacy\n"
    yield made_from(out)
    yield f"## A private run\n\n{GUARANTEE}"
    yield f"## What SOFA-FL does under noise\n\n{METHOD}"
    yield f"## What is compared\n\n{COMPARED}"
    if not rows:
        yield "There are no results yet: `sofa-fl reproduce privacy` makes them.\n"
        return
    yield f"## What it costs\n\n{_what_was_run(rows)}\n{verdicts(rows)}"
    yield from picture(pages, "privacy")
    yield f"## Every budget\n\n{READING}\n{privacy_tables(rows)}"


GUARANTEE = """\
`privacy.epsilon` makes a simulated run private, for every method and on every engine; it needs `pip install 'sofa-fl[private]'`.

```sh
sofa-fl run --set sharing.ratio=0 --set privacy.epsilon=2 --set local.batch_size=250
```

- **Training** is DP-SGD ([Abadi et al.](https://arxiv.org/abs/1607.00133)): batches are drawn sample by sample.
  The gradient of each sample is clipped to `privacy.clip`, and noise is added to the sum.
  The losses of batches get noise with them.
- **The class mix** of a client gets noise once (`privacy.count_noise`).
- **Held-out losses** are clipped to `privacy.max_loss`, and get noise. A client answers `privacy.scores` of them per round; by default none.
- **The noise** follows from epsilon, delta, rounds, batches and the size of a client.
  [dp-accounting](https://pypi.org/project/dp-accounting/) adds up what is spent.
  The summary says what was spent, and a client whose budget is spent does not answer any more.

Everything else (the tree, clusters' models, what a client uses) is made from these answers alone and costs nothing more.
The guarantee is about any one sample of a client: nobody who sees all answers can tell well whether it was there.
Samples to train on and held-out samples are different ones, so each part has the budget for itself.
How many samples a client has is taken to be public.
Scores on test samples measure a run and decide nothing, so they have no noise.
A simulation draws its noise from the run's seed; a [private site](deploy.md#a-private-site) draws it from its own machine.
"""

METHOD = """\
Held-out losses on a hundred samples say little once they have noise, so by default SOFA-FL goes by the noisy models alone.

- Noise makes updates long, but two clients' updates agree only in what they learned.
  So clients are placed by the inner products of their updates with those of others.
  That of an update with itself, which noise fills, is replaced by the largest of the others.
- Clients of a cluster start every round from the same model, so their updates add up over rounds while the noise cancels.
  In rounds 0, 1, 2, 4, 8 and so on DMAC looks at these sums, and a cluster is divided if the agreement within the parts could not be chance.
- A client uses its cluster's model, the noise of which is averaged out over the clients of the cluster.

`sofa.evidence=models` does the same in a deployment whose sites are private.
With `privacy.scores` above 0, SHAPE and the mixing weights go by noisy losses, as they go by exact ones without privacy.
"""

COMPARED = """\
There are two federations, each at epsilon = 8, 4, 2 and 1 with delta = 1e-5.
*turned* has 20 clients in four rotations of MNIST, and *S4* has 24 in four rotations with two variants of the labels.
All methods train an MLP with a hidden layer of 32 by plain descent at a rate of 1 that falls to 0.3.
After a warm-up of 25 batches there are 20 rounds of 5 batches, of 250 samples on average.
So all have the same noise at the same epsilon.
The rate is one that suits all, and was not chosen for any method: with half of the clients and epsilon = 2, a rate of 4 takes the oracle from 88 to 88.5%.
The same rate takes training alone from 85 to 79%, and so would make the lead over it look larger.
HypCluster is told the number of groups, and chooses by the noisy held-out losses of all its models in every round.
The oracle is told the groups themselves.
"""

READING = """\
Bold marks the best method that is not told the groups.
± is a 95% interval over seeds (Student's t), of differences seed by seed.
"""


def _what_was_run(rows: Sequence[Row]) -> str:
    return f"{over(rows)}\n{engines_of(rows)}\n{command('privacy', rows, common(rows, ()))}"
