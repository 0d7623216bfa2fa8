"""The configuration: the paper's defaults, and errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.run.config import Config, config_to_dict, load_config, parse_config


def test_defaults_are_the_papers() -> None:
    """But for the learning rate, of which it says nothing."""
    config = load_config()
    assert config == Config()
    assert (config.method, config.rounds, config.seed) == ("sofa", 20, 0)
    data, local = config.data, config.local
    assert (data.name, data.num_clients) == ("mnist", 20)
    assert (data.partition, data.alpha) == ("dirichlet", 1.0)
    assert (data.num_train, data.num_test) == (None, None)
    assert (config.model.name, config.model.batch_norm) == ("cnn", False)
    assert (local.batches, local.batch_size) == (25, 100)
    assert (local.optimizer, local.learning_rate, local.weight_decay) == ("adam", 2e-3, 1e-4)
    sharing = config.sharing
    assert (sharing.ratio, sharing.mode, sharing.max_disclosure) == (None, "random", None)
    assert config.hypcluster.num_clusters == 3


def test_a_file_and_then_settings(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("seed: 3\nrounds: 5\ndata: {num_clients: 7, alpha: 0.5}\n")
    config = load_config(file, ["rounds=9", "data.alpha=2", "sofa.shape.merge=0.25"])
    assert (config.seed, config.rounds) == (3, 9)
    assert (config.data.num_clients, config.data.alpha, config.data.name) == (7, 2.0, "mnist")
    assert config.sofa.shape.merge == 0.25


def test_later_settings_win_and_an_empty_file_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert load_config(tmp_path / "empty.yaml", ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("setting", "read"),
    [
        ("local.learning_rate=1e-3", 1e-3),  # to YAML 1.1 a string
        ("local.learning_rate=3E-4", 3e-4),
        ("local.learning_rate=.5", 0.5),
        ("sharing.ratio=[0.1, 1e-2]", (0.1, 0.01)),
        ("sharing.ratio=0", 0.0),
        ("sharing.max_disclosure={3: 0.5, 4: 0}", {3: 0.5, 4: 0.0}),
        ("sofa.shape.operations=[graft, prune]", ("graft", "prune")),
        ("out=null", None),
        ("out=runs/x=y", "runs/x=y"),
        ("model.batch_norm=true", True),
        (" data.num_train = 500 ", 500),
    ],
)
def test_values_as_they_are_typed(setting: str, read: object) -> None:
    value: Any = load_config(settings=[setting])
    for name in setting.partition("=")[0].strip().split("."):
        value = getattr(value, name)
    assert value == read
    assert type(value) is type(read)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("round=3", "unknown key round; did you mean rounds?"),
        ("data.alpah=1", "unknown key data.alpah; did you mean data.alpha?"),
        ("sofa.shape.merg=1", "unknown key sofa.shape.merg; did you mean sofa.shape.merge?"),
        ("local.lr=1", "unknown key local.lr; "),
        ("zzzzzz=1", "unknown key zzzzzz; known: method, title, preset, seed, rounds"),
        ("data.alpha=-1", "data.alpha: input should be greater than 0, got -1"),
        ("data.holdout=1", "data.holdout: input should be less than 1, got 1"),
        ("rounds=0", "rounds: input should be greater than or equal to 1, got 0"),
        ("rounds=many", "rounds: input should be a valid integer"),
        ("rounds=2.5", "rounds: input should be a valid integer"),
        ("seed=-1", "seed: "),
        ("method=fedavgg", "unknown method fedavgg; did you mean fedavg?"),
        ("method=zzzzzz", "unknown method zzzzzz; known: sofa, apfl, cfl, ditto"),
        ("method=3", "method: input should be a valid string, got 3"),
        ("method=nowhere.at_all:Mine", "cannot import the method nowhere.at_all:Mine: ModuleNotF"),
        ("method=:Mine", "cannot import the method :Mine: "),
        ("method=tests.methods.own:Momentun", "unknown method tests.methods.own:Momentun: "),
        (
            "method=tests.methods.own:Unfinished",
            "the method tests.methods.own:Unfinished must",
        ),
        (
            "method=tests.methods.own:Demanding",
            "the constructor of the method tests.methods.own:Demanding needs",
        ),
        ("options.beta=1", "the method sofa takes no options; set keys in its own section, sofa"),
        ("preset=papr", "unknown preset papr; did you mean paper?"),
        ("preset=[1]", "unknown preset [1]; known: paper"),
        ("engine=gpus", "engine: input should be 'auto'"),
        ("sharing.ratio=1.5", "sharing.ratio: "),
        ("sharing.ratio=[0.1, 2]", "sharing.ratio: "),
        ("sharing.max_disclosure={0: 2}", "sharing.max_disclosure: "),
        ("sofa.eta=2", "sofa.eta: input should be less than or equal to 1, got 2"),
        ("sofa.dmac.increase=0.5", "sofa.dmac.increase: "),
        ("sofa.shape.operations=[grow]", "sofa.shape.operations: "),
        ("data=mnist", "data is a section with its own keys, got 'mnist'"),
        ("rounds.x=1", "rounds is a value, not a section, so rounds.x cannot be set"),
        ("rounds", "a setting must be key=value, got 'rounds'"),
        ("=3", "a setting must be key=value, got '=3'"),
        ("rounds=[1", "cannot read the value of rounds: '[1'"),
        ("local.learning_rate=.nan", "local.learning_rate: "),
        ("fl_hc.metric=cosine", "fl_hc: the cosine metric needs another fl_hc.linkage"),
        ("cfl.stationary=1.5", "cfl.stationary: "),
    ],
)
def test_what_is_wrong_is_named(setting: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("rounds: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "a.yaml", [setting])
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n- 2\n", "must contain keys and values, got a list"),
        ("a: [1\n", "is not valid YAML"),
        ("just text", "must contain keys and values, got a str"),
        ("5: 1\n", "unknown key 5; "),
        ("data: {1: 2}\n", "unknown key data.1; "),
        ("data:\n", "data is a section with its own keys, got None"),
    ],
)
def test_files_that_are_no_configuration(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*none\.yaml"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ConfigError, match=r"binary\.yaml"):
        load_config(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"method": "hypcluster", "seed": 7, "out": "x", "data": {"num_train": 100, "dir": "y"}},
        {"sharing": {"ratio": [0.1, 0.0], "max_disclosure": {"3": 0.5, "0": 0}}},
        {"sofa": {"propagation": "cascade", "shape": {"operations": ["graft"]}}},
    ],
)
def test_a_configuration_survives_its_file(values: dict[str, Any]) -> None:
    config = parse_config(values)
    plain = config_to_dict(config)
    assert parse_config(plain) == config
    assert parse_config(yaml.safe_load(yaml.safe_dump(plain))) == config
    assert set(plain) == set(config_to_dict(Config())), "complete, whatever was given"


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().rounds = 3  # type: ignore[misc]
