"""Federations that were not made for this method: natural ones, and small or lopsided ones.

`languages`, `weather` and `heart` have the clients that they have. S6 to S9 are made of MNIST and
continue the benchmark's S1 to S5:

- S6: 100 clients with 60 images each, in four rotations: far fewer samples than S4's 2,500.
- S7: 19 clients alike, and one that calls every class otherwise. Its labels agree with nobody's, so
  all that it can do is to train alone; the others lose by listening to it. Samples, network and
  budget are those of S5.
- S8: 200 clients in S4's eight groups (4 rotations x 2 label swaps), 60 images each, with a short
  budget: 5 batches of 20 a round.
- S9: nested as S4 is (4 regions x 2 sites x 3 clients), but compatible. Regions are 45° apart and
  sites within a region 15°, so that images of all regions look different and no label changes its
  meaning: what one region learns is no mistake elsewhere. 25, 100 or 500 images per client.

The warm-up has 25 batches, as in the benchmark; in `heart` it is the first of FLamby's 15 rounds of
100 batches. Nothing is shared.
"""

from __future__ import annotations

from collections.abc import Mapping

from study.design.settings import Overrides, Setting

NO_SHARING = (0.0,)
QUICK_NATURAL = ("languages-300", "heart", "S7", "S9-25")  # what the package contains


def _budget(batches: int, batch_size: int) -> Overrides:
    """What a client trains in a round."""
    return {"local.batches": batches, "local.batch_size": batch_size}


def _natural(name: str, title: str, data: str, hidden: list[int], **more: object) -> Setting:
    overrides: dict[str, object] = {
        "data.name": data,
        "data.partition": "natural",
        "model.name": "mlp",
        "model.hidden": hidden,
    }
    overrides |= {key.replace("__", "."): value for key, value in more.items()}
    return Setting(name, title, overrides, NO_SHARING)


def _languages(samples: int, batches: int, batch_size: int) -> Setting:
    return _natural(
        f"languages-{samples}",
        f"33 languages, {samples:,} samples each: the next letter of a word",
        "languages",
        [256, 128],
        data__num_clients=33,
        data__samples=samples,
        hypcluster__num_clusters=7,  # families
        **_budget(batches, batch_size),
    )


WEATHER: Mapping[str, object] = {
    "data__num_clients": 49,
    "hypcluster__num_clusters": 9,  # states and territories
}


def _sites(samples: int) -> Setting:
    return Setting(
        f"S9-{samples}",
        f"MNIST, 24 clients in nested regions and sites that are compatible, {samples} images each",
        {
            **_budget(10, 20),
            "data.num_clients": 24,
            "data.partition": "sites",
            "data.num_regions": 4,
            "data.num_sites": 2,
            "data.samples": samples,
            "model.name": "mlp",
            "hypcluster.num_clusters": 8,
        },
        NO_SHARING,
    )


NATURAL_SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        _languages(2000, 25, 50),
        _languages(300, 15, 20),
        _natural(
            "weather",
            "49 Australian weather stations: rain tomorrow",
            "weather",
            [64, 32],
            **WEATHER,
            **_budget(20, 50),
        ),
        _natural(
            "years",
            "the same stations, year by year: until 2009 first, then a year every two rounds",
            "weather",
            [64, 32],
            data__scenario__name="years",
            data__scenario__at=4,
            data__scenario__lasts=2,
            **WEATHER,
            **_budget(20, 50),
        ),
        _natural(
            "heart",
            "four hospitals: heart disease (FLamby's protocol, logistic regression)",
            "heart",
            [],
            data__num_clients=4,
            rounds=14,
            warmup=100,
            **_budget(100, 4),
        ),
        Setting(
            "S6",
            "MNIST, 100 clients with 60 images each, four rotations",
            {
                **_budget(10, 20),
                "data.num_clients": 100,
                "data.partition": "groups",
                "data.num_rotations": 4,
                "data.num_swaps": 1,
                "data.samples": 60,
                "model.name": "mlp",
                "hypcluster.num_clusters": 4,
            },
            NO_SHARING,
        ),
        Setting(
            "S7",
            "MNIST, 19 clients alike and one with other labels",
            {"data.partition": "odd", "hypcluster.num_clusters": 2},
            NO_SHARING,
        ),
        Setting(
            "S8",
            "MNIST, 200 clients with 60 images each, eight nested groups, a short budget",
            {
                **_budget(5, 20),
                "data.num_clients": 200,
                "data.partition": "groups",
                "data.num_rotations": 4,
                "data.num_swaps": 2,
                "data.samples": 60,
                "model.name": "mlp",
                "hypcluster.num_clusters": 8,
            },
            NO_SHARING,
        ),
        *map(_sites, (25, 100, 500)),
    )
}
