"""The target `adapters`: it trains adapters of MiniLM on CLINC150, and adds a row per run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sofa_fl.errors import RunError
from sofa_fl.experiment.run.config import Config, config_to_dict
from sofa_fl.experiment.run.launch import run_or_resume
from sofa_fl.experiment.run.loop import Own
from sofa_fl.experiment.storage.run_folder import RunFolder
from study.design.adapter_settings import ADAPTED, COMMON, FEDERATIONS, QUICK, SWAP_AT
from study.design.run_plan import UNTOLD, Scope, configure
from study.design.settings import Overrides
from study.intents import federation, find_base, network_of, read_queries
from study.pages.adapter_tables import ADAPTERS, adapter_tables
from study.rows.recovery import AGREES, until
from study.rows.row_files import Row, add_rows, make_row, read_rows, row_key
from study.targets import Study, TargetResult, whole_key

queries = cache(read_queries)


def adapters(study: Study) -> TargetResult:
    """Every contender in every federation, with every seed; runs that have ended are kept."""
    scope, file = study.scope, study.out / ADAPTERS
    there, told = read_rows(file), overrides_of(scope)
    known = {whole_key(row) for row in there}
    asked: list[Row] = [
        {"setting": setting, "method": method, "sharing": 0.0, "seed": seed, "overrides": told}
        for setting in scope.settings
        for method in scope.methods
        for seed in scope.seeds
    ]
    if study.only_missing:
        asked = [keys for keys in asked if whole_key(keys) not in known]
    changed = {row_key(row) for row in there} & {row_key(keys) for keys in asked}
    if changed and not study.may_replace:
        raise RunError(
            f"{file} already has {len(changed)} of these {len(asked)} rows; --missing leaves them "
            "as they are, --replace makes them again, and --out DIR writes elsewhere"
        )
    made = []
    for keys in asked:
        study.say(f"{keys['setting']}, {keys['method']}, seed {keys['seed']}")
        made.append(one_run(scope, study.runs, keys["setting"], keys["method"], keys["seed"]))
        add_rows(file, made[-1:])
    return TargetResult((file,), tuple(made), adapter_tables(read_rows(file)))


def overrides_of(scope: Scope) -> Overrides:
    """What a row says was changed."""
    return {name: value for name, value in scope.extra.items() if name not in UNTOLD}


def one_run(scope: Scope, runs: Path, setting: str, method: str, seed: int) -> Row:
    """A run, and what is kept of it."""
    base, config = find_base(scope.data_dir), planned(scope, setting, method, seed)
    is_chosen_on = config.data.score_on == "validation"
    train = queries(scope.data_dir, base, "train")
    test = queries(scope.data_dir, base, "val" if is_chosen_on else "test")
    about = FEDERATIONS[setting]
    swap_at = min(SWAP_AT, config.rounds) if about.swaps else None
    data = federation(train, test, seed, about.samples, swap_at)
    network = network_of(base, ADAPTED[method].network, data.num_outputs)
    folder = runs / f"{setting}-{method}-{seed}-{_short(config)}"
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    result = run_or_resume(replace(config, out=str(folder)), Own(data, network))
    row = make_row(setting, method, 0.0, seed, overrides_of(scope), result.summary)
    return {**row, **_measured(folder, swap_at)}


def planned(scope: Scope, setting: str, method: str, seed: int) -> Config:
    """The configuration of a run; its data and its network are passed."""
    values = {
        **COMMON,
        **FEDERATIONS[setting].overrides,
        **(QUICK if scope.quick else {}),
        "local.learning_rate": ADAPTED[method].rate,
        **ADAPTED[method].overrides,
        **scope.extra,
        "method": ADAPTED[method].method,
        "seed": seed,
    }
    return configure(values)


def _measured(folder: Path, swap_at: int | None) -> Row:
    """The GPU memory that this process took at most, and how soon the tree was right again."""
    found: dict[str, Any] = {}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.max_memory_allocated() / 2**30
    if swap_at is not None:
        events = [event for event in RunFolder.open(folder).events() if event["round"] >= swap_at]
        found["truth"] = until(min(event["groups"]["ari"]) >= AGREES for event in events)
        found["since"] = sum(event["client"]["mean"] for event in events) / len(events)
    return found


def _short(config: Config) -> str:
    text = json.dumps(config_to_dict(config), sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
