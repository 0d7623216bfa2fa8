"""Private runs: the settings that they exclude, and the engine that adds noise."""

from __future__ import annotations

from sofa_fl.data.federated_data import FederatedData
from sofa_fl.engine.base import Engine
from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config
from sofa_fl.privacy.private_engine import PrivateEngine


def check_private(config: Config, *, is_deployed: bool) -> None:
    """Raise if anything would leave clients without noise in a private run."""
    if config.sharing.largest_ratio:
        raise ConfigError(
            f"privacy.epsilon needs sharing.ratio=0, got {config.sharing.ratio}, because shared "
            "samples leave without noise"
        )
    if is_deployed:
        raise ConfigError(
            "privacy.epsilon is for simulations; in a deployment, each site sets it in its policy"
        )


def made_private(config: Config, data: FederatedData, engine: Engine) -> PrivateEngine:
    """The engine with noise."""
    return PrivateEngine(
        engine, data, config.privacy, config.local,
        seed=config.seed, rounds=config.rounds, warmup=config.warmup,
    )  # fmt: skip
