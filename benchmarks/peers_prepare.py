"""Writes the peers' job as one .npz file and says what the machine can do, as one JSON line.

A process of its own: the driver maps no torch, or its pages would count half for those who do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from engines import FLOPS_PER_SAMPLE, FORWARD, matmul_rate

from sofa_fl.data.config import DataConfig
from sofa_fl.data.federate import federate
from sofa_fl.engine.base import LocalConfig


def main() -> None:
    path, local = Path(sys.argv[1]), LocalConfig()
    data = federate(DataConfig(num_clients=20, alpha=1.0, holdout=0.0), seed=0)
    if not path.exists():
        np.savez(
            path,
            x=data.train.x,
            y=data.train.y,
            test_x=data.test.x,
            test_y=data.test.y,
            scale=data.train.scale,
            shift=data.train.shift,
            rows=np.concatenate([client.train for client in data.clients]),
            sizes=data.sizes,
        )
    trained = len(data.clients) * local.batches * local.batch_size
    record = {
        "torch": torch.__version__,
        "matmul_flops": matmul_rate(),
        "flops_per_round": trained * FLOPS_PER_SAMPLE + len(data.test) * FORWARD,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
