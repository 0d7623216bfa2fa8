"""FedAvg with Flower's simulation on Ray: so many CPUs per client, so many clients at a time."""

from __future__ import annotations

import os

from job import arguments


def main() -> None:
    options = arguments("cpus")
    # Read by the app in every process; Flower reads its own when it is imported.
    os.environ |= {
        "PEERS_DATA": str(options.data),
        "PEERS_ROUNDS": str(options.rounds),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    from flwr.simulation import run_simulation
    from flwr_app import client_app, job, server_app

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=len(job().rows),
        backend_config={
            "init_args": {"num_cpus": len(os.sched_getaffinity(0))},
            "client_resources": {"num_cpus": options.cpus, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
