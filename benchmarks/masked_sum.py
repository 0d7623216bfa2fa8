"""What the masks of secure aggregation cost: seconds and bytes of one sum, without a network.

    python benchmarks/masked_sum.py [--members 4 16 64] [--size 1475146]

By default the model is the paper's CNN. A dropout is a member that did not send its model: its
masks with all others are then removed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sofa_fl_flower.masked_sum.masks import public_of, sum_key_of
from sofa_fl_flower.masked_sum.member import masked, reveal
from sofa_fl_flower.masked_sum.plan import SumPlan, threshold_for
from sofa_fl_flower.masked_sum.unmask import unmasked_mean


def measure(num: int, size: int, dropouts: int) -> None:
    """Print a line on a sum of `num` members, each of whom computes alone."""
    keys = [sum_key_of(i.to_bytes(32)) for i in range(1, num + 1)]
    plan = SumPlan("one", tuple(map(public_of, keys)), (100,) * num, threshold_for(num, 3))
    model = np.random.default_rng(0).normal(0, 0.1, size).astype(np.float32)
    survivors = tuple(range(num - dropouts))
    began = time.perf_counter()
    sent = [masked(plan, keys[one], model) for one in survivors]
    mask_seconds = (time.perf_counter() - began) / len(survivors)
    began = time.perf_counter()
    said = {}
    for one in survivors:
        shares = np.stack([sent[by].shares[one] for by in survivors])
        said[one] = reveal(plan, keys[one], survivors, shares)
    reveal_seconds = (time.perf_counter() - began) / len(survivors)
    began = time.perf_counter()
    mean = unmasked_mean(plan, {one: sent[one].numbers for one in survivors}, said)
    server_seconds = time.perf_counter() - began
    assert np.abs(mean - model).max() < 1e-4
    more_up = sent[0].numbers.nbytes - model.nbytes + sent[0].shares.nbytes
    more_up += said[0].shares.nbytes + said[0].seeds.nbytes
    print(
        f"{num:4} members, {dropouts} dropouts, {plan.threshold} must answer: "
        f"member {mask_seconds:.2f} s to mask, {reveal_seconds:.3f} s to reveal; "
        f"server {server_seconds:.2f} s; bytes up beyond the model {more_up}, "
        f"down {len(survivors) * sent[0].shares.shape[1]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--size", type=int, default=1_475_146)
    options = parser.parse_args()
    for num in options.members:
        for dropouts in (0, 1):
            if num - dropouts >= threshold_for(num, 3):
                measure(num, options.size, dropouts)


if __name__ == "__main__":
    main()
