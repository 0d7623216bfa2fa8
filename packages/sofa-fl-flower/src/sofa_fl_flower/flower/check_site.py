"""Whether a site is ready: its policy, its samples and its copy of the app, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.config import get_project_config, parse_config_args

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, load_config
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import build
from sofa_fl_flower.flower.client_app import MachineApp
from sofa_fl_flower.machine import limits
from sofa_fl_flower.machine.client_machine import ClientMachine
from sofa_fl_flower.machine.machine_data import MachineConfig, as_machine_data
from sofa_fl_flower.machine.own_batches import draw_batches
from sofa_fl_flower.machine.policy import Policy, check_app
from sofa_fl_flower.machine.site import open_site
from sofa_fl_flower.server.expected import Expected, expected_in
from sofa_fl_flower.transport.machine_profile import MachineProfile
from sofa_fl_flower.transport.run_setup import MakeNetwork, RunSetup


def read_node_config(text: str) -> MachineConfig:
    """The values of `--node-config`, as Flower reads them."""
    return parse_config_args([text] if text else None)


def check_site(policy: Policy, machine: MachineConfig) -> list[str]:
    """Load the samples as the node would; say what the server will be told of them.

    Raises an error if the site would refuse the app's run, or the server the site. `machine` holds
    the values of `--node-config`.
    """
    if policy.app is None:
        raise ConfigError(
            "only a site with its own copy of the app can be checked; set `app` in the policy"
        )
    check_app(policy)
    app = get_project_config(Path(policy.app))["tool"]["flwr"]["app"]
    expected = expected_in(app["config"])
    config = _config_of(Path(policy.app), app)
    load = get_load_client_app_fn(app["components"]["clientapp"], policy.app, multi_app=False)
    made = load("", "", "")
    if not isinstance(made, MachineApp):
        raise ConfigError(
            "to be checked, the app must be created by sofa_fl_flower.flower.client_app"
        )
    data, network = as_machine_data(made.load_data(machine)), made.network
    setup = _setup_of(config, expected, network)
    here = ClientMachine(data, setup, policy, open_site(Path(policy.state)), None, network)
    profile = here.profile()
    if (why := expected.refusal(profile)) is not None:
        raise ConfigError(f"the server would turn this machine away: {why}")
    _check_training(policy, config, profile.num_train)
    return _lines(profile, policy)


def _config_of(folder: Path, app: dict[str, Any]) -> Config:
    package = str(app["components"]["clientapp"]).partition(":")[0].partition(".")[0]
    return load_config(folder / package / "sofa.yaml", str(app["config"].get("set", "")).split())


def _setup_of(config: Config, expected: Expected, network: MakeNetwork | None) -> RunSetup:
    frozen = ""
    if network is not None:
        shape, outputs = expected.format.input[1], expected.num_outputs
        frozen = FlatNetwork(build(lambda: network(shape, outputs), 0)).frozen_digest
    return RunSetup(
        seed=config.seed,
        local=config.local,
        model=config.model,
        num_outputs=expected.num_outputs,
        frozen=frozen,
    )


def _check_training(policy: Policy, config: Config, num: int) -> None:
    """Refuse what the first round would be refused for."""
    local = config.local
    limits.check_training(policy, num, 0, max(local.batches, config.warmup), 0)
    order = draw_batches(num, num, 1, local.batch_size, policy.min_rows)
    limits.check_batches(policy, order, num)


def _lines(profile: MachineProfile, policy: Policy) -> list[str]:
    kind, shape = profile.format.input
    what = f"{profile.num_classes} classes" if profile.num_classes else "a regression"
    return [
        f"{profile.num_train:,} training samples, {profile.num_holdout:,} held out, "
        f"{profile.num_test:,} for testing",
        f"inputs are {kind} of shape {'x'.join(map(str, shape))}, {what}",
        f"at most {policy.max_disclosure:.0%} of the training samples ever leave as they are",
        "the policy, the samples and the app fit together",
    ]
