"""`docs/privacy.md`, on what differential privacy costs; from `results/` alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from study.pages.made_by import made_by
from study.pages.page_parts import command, common, engines_of, made_from, over, picture, rate_fell
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
        yield "There are no results yet: `python -m study privacy` makes them.\n"
        return
    yield f"## What it costs\n\n{_what_was_run(rows)}\n{verdicts(rows)}"
    yield from picture(pages, "privacy")
    yield f"## Every budget\n\n{READING}{made_by(rows)}\n{privacy_tables(rows)}"


GUARANTEE = """\
`privacy.epsilon` makes a simulated run private, for every method and on every engine; it needs `pip install 'sofa-fl[private]'`.

```sh
sofa-fl run --set sharing.ratio=0 --set privacy.epsilon=2 --set local.batch_size=250
```

- **Training** is DP-SGD ([Abadi et al.](https://arxiv.org/abs/1607.00133)): batches are drawn sample by sample.
  The gradient of each sample is clipped to `privacy.clip`, and noise is added to the sum.
  The losses of batches get noise in the same way.
- **The class mix** of a client gets noise once (`privacy.count_noise`).
- **Held-out losses** are clipped to `privacy.max_loss`, and get noise. A client answers `privacy.scores` requests for them per round; by default none.
- **The amount of noise** follows from epsilon, delta, rounds, batches and the number of a client's samples.
  [dp-accounting](https://pypi.org/project/dp-accounting/) adds up the costs.
  The summary reports what was spent, and a client whose budget is spent stops answering.

Everything else (the tree, the clusters' models, the models that clients use) is computed from these answers alone, so it costs no extra budget.
The guarantee concerns any single sample of a client: nobody who sees all answers can reliably tell whether it was among the client's samples.
Training samples and held-out samples are disjoint, so each part has the whole budget to itself.
The number of a client's samples is assumed to be public.
Scores on test samples only measure a run and affect nothing, so they have no noise.
A simulation draws its noise from the run's seed; a [private site](deploy.md#a-private-site) draws it from its own machine.
"""

METHOD = """\
Noisy held-out losses on a hundred samples carry little information, so by default SOFA-FL uses only the noisy models.

- Noise makes updates long, but it does not make the updates of two clients agree; only what they learned does.
  So a client's position consists of the inner products of its update with those of the others.
  The inner product of an update with itself, which is mostly noise, is replaced by the largest of the others.
- The clients of a cluster start every round from the same model, so their updates add up over rounds while the noise cancels.
  In rounds 0, 1, 2, 4, 8 and so on, DMAC (Dynamic Multi-branch Agglomerative Clustering) clusters these sums.
  A cluster is divided if the agreement within the parts cannot be chance.
- A client uses its cluster's model, in which averaging over the clients of the cluster reduces the noise.

`sofa.evidence=models` does the same in a deployment with private sites.
With `privacy.scores` above 0, noisy losses decide on the mixing weights and on the edits of
SHAPE (Self-organizing Hierarchical Adaptive Propagation and Evolution), as exact losses do without privacy.
"""

COMPARED = """\
There are two federations, each at epsilon = 8, 4, 2 and 1 with delta = 1e-5.
*turned* has 20 clients in four rotations of MNIST, and *S4* has 24 in four rotations with two variants of the labels.
All methods train an MLP with a hidden layer of 32 by plain SGD, at a learning rate of 1.
After a warm-up of 25 batches there are 20 rounds of 5 batches, of 250 samples on average.
So all methods have the same noise at the same epsilon.
The rate suits all methods and was not tuned for any: with half of the clients and epsilon = 2, a rate of 4 takes the oracle from 88 to 88.5%.
The same rate takes training alone from 85 to 79%, which would make SOFA-FL's lead over it look larger.
HypCluster is given the number of groups, and chooses by the noisy held-out losses of all its models in every round.
The oracle is given the groups themselves.
"""

READING = """\
Bold marks the best method that is not given the groups.
± is a 95% interval over seeds (Student's t); differences are taken seed by seed.
"""


def _what_was_run(rows: Sequence[Row]) -> str:
    head = f"{over(rows)}\n{engines_of(rows)}{rate_fell('all methods')}"
    return f"{head}\n{command('privacy', rows, common(rows, ()))}"
