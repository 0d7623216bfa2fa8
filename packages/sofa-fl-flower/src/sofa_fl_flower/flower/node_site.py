"""Which policy and which state hold on this machine; in a simulation, none that restricts."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from sofa_fl.errors import ConfigError
from sofa_fl_flower.machine.machine_data import MachineConfig, MachineData, fingerprint_of
from sofa_fl_flower.machine.policy import Policy, load_policy
from sofa_fl_flower.machine.site import Site, open_site

POLICY = "SOFA_FL_POLICY"  # the policy's file, which `sofa-fl deploy node --policy` names
SIMULATED = Policy(
    state="",
    min_rows=1,
    own_batches=False,
    max_disclosure=1.0,
    max_received=1e6,
    embeds=True,
    max_requests=256,
    max_trainings=256,
    max_scores=None,
    coarse_scores=False,
)


def site_of(config: MachineConfig) -> tuple[Policy, Site | None]:
    """Return the policy and the state of this machine; a simulated one has no state.

    `config` is the machine's `--node-config`: the server has no part in it.
    """
    if "max-disclosure" in config:
        raise ConfigError(
            "max-disclosure is now max_disclosure in the site's policy; create the policy with "
            "'sofa-fl deploy site', and remove max-disclosure from --node-config"
        )
    file = os.environ.get(POLICY) or config.get("policy")
    if file is None:
        if is_simulated(config):
            return SIMULATED, None
        raise ConfigError(
            "this machine has no policy; create one with 'sofa-fl deploy site', and start the node "
            "with --policy FILE"
        )
    policy = load_policy(Path(str(file)))
    return policy, open_site(Path(policy.state))


def is_simulated(config: MachineConfig) -> bool:
    """Whether Flower simulates this machine in Ray: then samples leave no machine."""
    ray = sys.modules.get("ray")
    return ray is not None and "num-partitions" in config and bool(ray.is_initialized())


def simulated_site(data: MachineData, number: int | None) -> Site:
    """The site of a simulated machine: the same in every process, and after a restart."""
    content = fingerprint_of(data) + str(number).encode()
    return Site(hashlib.blake2b(content, digest_size=32).digest())
