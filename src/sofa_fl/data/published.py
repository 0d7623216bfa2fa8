"""The datasets known by name: their files, SHA-256 sums, pixel statistics and mirrors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"
TEST_IMAGES = "t10k-images-idx3-ubyte.gz"
TEST_LABELS = "t10k-labels-idx1-ubyte.gz"


@dataclass(frozen=True, slots=True)
class Published:
    """A published dataset of four idx files.

    Attributes:
        sums: SHA-256 of every file, as it is published (gzipped).
        mean: Mean of the training pixels, of a range of 0 to 1.
        std: Standard deviation of the same.
        mirrors: Addresses that a file's name is appended to, tried in this order. None for a
            dataset that ships with the package.
    """

    sums: Mapping[str, str]
    mean: float
    std: float
    mirrors: tuple[str, ...] = ()


PUBLISHED: dict[str, Published] = {
    "mnist": Published(
        sums={
            TRAIN_IMAGES: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            TRAIN_LABELS: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            TEST_IMAGES: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            TEST_LABELS: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        mean=0.1307,
        std=0.3081,
    ),
    "fashion-mnist": Published(
        sums={
            TRAIN_IMAGES: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            TRAIN_LABELS: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            TEST_IMAGES: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            TEST_LABELS: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        mean=0.2860,
        std=0.3530,
        mirrors=(
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            # Plain HTTP is all that this mirror speaks; the sums make up for it.
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
}
