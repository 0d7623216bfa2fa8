"""What a site allows: a file that its operator writes, and that its machine enforces.

Nothing in it comes from the server. `limits.py` checks messages against it.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Interval

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.values import validated
from sofa_fl.models.config import ModelConfig
from sofa_fl_flower.machine.privacy import SitePrivacy
from sofa_fl_flower.machine.site_records import SecureAggregationConfig
from sofa_fl_flower.masked_sum.plan import is_key
from sofa_fl_flower.transport.message_checks import flaw_of_name

Fraction = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a site allows.

    Attributes:
        state: Absolute path of the folder that `sofa-fl deploy site` created, with the site's key,
            its ledger of disclosed samples, and its audit log.
        name: The site's name in the server's tree, report and exports; if empty, the site has only
            a number.
        app: Absolute path of the site's own copy of the app. Only this code runs.
        app_hash: Instead of `app`, the SHA-256 of the app (its FAB) that the server may send.
        model: The network that the site trains, unless the app brings its own.
        min_rows: The smallest number of distinct samples of this site in any batch, evaluation or
            embedding.
        own_batches: Whether the site draws the batches itself, so that nobody else knows which
            samples are in a batch; otherwise they follow from the server's seed, as in a
            simulation.
        holdout: Fraction of the training samples that the site holds out, unless its loader chooses
            them. The server does not choose them.
        max_disclosure: Largest fraction of the training samples that may ever leave as they are, in
            all runs together.
        embeds: Whether to answer requests for mean features (`sofa.position=latent`).
        max_batches: Most batches in one training.
        max_requests: Most trainings and evaluations in one message.
        max_trainings: Most trainings in one message.
        max_scores: Most losses and accuracies that may ever leave without noise, in all runs
            together: one for each evaluation and each training, and for each number of a mean
            feature. None means any number.
        coarse_scores: Whether losses are clipped sample by sample, and losses and accuracies
            rounded; otherwise they are exact, as in a simulation.
        max_learning_rate: Largest step size.
        max_classes: Most outputs of the network.
        max_received: Most samples of other sites to train on, as a multiple of the site's own.
            Anyone who gives samples can influence the site's model, so by default none are
            accepted.
        privacy: Differential privacy of all answers.
        secure_aggregation: Which sums of models the site takes part in.
    """

    state: str
    name: str = ""
    app: str | None = None
    app_hash: str | None = None
    model: ModelConfig = field(default_factory=ModelConfig)
    min_rows: Annotated[int, Ge(1)] = 20
    own_batches: bool = True
    holdout: Annotated[float, Interval(ge=0, lt=1)] = 0.05
    max_disclosure: Fraction = 0.0
    embeds: bool = False
    max_batches: Annotated[int, Ge(1)] = 1000
    max_requests: Annotated[int, Ge(1)] = 128
    max_trainings: Annotated[int, Ge(1)] = 2
    max_scores: Annotated[int, Ge(0)] | None = 3000
    coarse_scores: bool = True
    max_learning_rate: Annotated[float, Gt(0)] = 0.1
    max_classes: Annotated[int, Ge(1)] = 1000
    max_received: Annotated[float, Ge(0)] = 0.0
    privacy: SitePrivacy = field(default_factory=SitePrivacy)
    secure_aggregation: SecureAggregationConfig = field(default_factory=SecureAggregationConfig)


@cache
def load_policy(file: Path) -> Policy:
    """Read a policy; a wrong key or value is a ConfigError that names it."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the policy {file}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the policy {file} is not valid TOML: {error}") from None
    try:
        policy = validated(Policy, values)
    except ConfigError as error:
        raise ConfigError(f"the policy {file} cannot be used: {error}") from None
    if (flaw := flaw_of_name(policy.name)) is not None:
        raise ConfigError(f"name in the policy {file} cannot be used: {flaw}")
    for name in ("state", "app"):
        path = getattr(policy, name)
        if path is not None and not Path(path).is_absolute():
            raise ConfigError(f"{name} in the policy {file} must be an absolute path, got {path!r}")
    if wrong := [key for key in policy.secure_aggregation.peers if not is_key(key)]:
        raise ConfigError(
            f"peers in the policy {file} must be public keys of 64 hexadecimal digits, from "
            f"sum.pub of the other sites, got {wrong[0]!r}"
        )
    if policy.privacy.epsilon and (policy.max_disclosure or policy.embeds):
        raise ConfigError(
            f"the policy {file} sets privacy.epsilon, so max_disclosure must be 0 and embeds "
            "false; otherwise samples and features would leave without noise"
        )
    return policy


def check_app(policy: Policy) -> None:
    """Raise unless the policy says which app may run."""
    if (policy.app is None) == (policy.app_hash is None):
        raise ConfigError(
            "a policy must name the app that may run: either app, the folder with the site's own "
            "copy, or app_hash, the SHA-256 of the app that the server may send"
        )
    if policy.app is not None and not (Path(policy.app) / "pyproject.toml").is_file():
        raise ConfigError(f"app in the policy must be a Flower app, but {policy.app} is not")


TEMPLATE = """\
# What this site allows. The server cannot change any of it; restart the node after an edit.

# The site's key, its ledger of disclosed samples and its audit log. Keep it, and back it up.
state = "{state}"

# The site's name in the server's tree, report and exports; with "", it has only a number.
name = {name}

# Only this copy of the app runs here, whatever the server sends. Read it before you trust it.
app = "{app}"

# Every batch and every evaluation has at least this many distinct samples of this site.
min_rows = {min_rows}

# The site draws its batches itself, so that nobody else knows which samples are in a batch.
own_batches = true

# The fraction of the training samples on which losses are compared; the site draws them itself.
holdout = {holdout}

# The fraction of the training samples that may ever leave this site as they are, in all runs
# together. What models and scores reveal does not count.
max_disclosure = {max_disclosure}

# Most samples of other sites to train on, per sample of its own; 0: none. Anyone who gives samples
# can influence this site's model, so allow it only if the sites trust each other.
max_received = {max_received}

# Most scores (losses with accuracies) that may ever leave without noise, in all runs together. A
# round asks for 9 to 27. Many scores can reveal samples; only noise (epsilon below) prevents that.
max_scores = {max_scores}

# No sample's loss counts beyond a limit, and losses and accuracies are rounded to three decimals.
coarse_scores = true

# Whether to answer requests for mean features, which only sofa.position=latent needs.
embeds = false

max_batches = {max_batches}
max_learning_rate = {max_learning_rate}

# The network, unless the app brings its own.
[model]
name = "{model}"

# Differential privacy: noise on all answers, and no answers once epsilon is spent. 0: none.
[privacy]
epsilon = 0.0

# Secure aggregation, if the server uses it: models leave in sums of at least this many sites.
[secure_aggregation]
smallest_cluster = 3
# peers = ["..."]       # public keys (sum.pub) of the sites that may be in a sum; default: any
# max_clear_models = 1  # models that may ever leave outside a sum, such as the first; default: any
"""


def policy_text(state: Path, app: Path, name: str = "") -> str:
    """The text of a new policy, with the defaults."""
    if (flaw := flaw_of_name(name)) is not None:
        raise ConfigError(flaw)
    plain = Policy(state=str(state))
    values = {one.name: getattr(plain, one.name) for one in fields(plain)}
    quoted = json.dumps(name, ensure_ascii=False)
    return TEMPLATE.format(**{**values, "name": quoted, "app": app, "model": plain.model.name})
