"""Natural federations: the clients as they are, and nothing scored that was trained on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sofa_fl.data.config import DataConfig, PartitionName
from sofa_fl.data.federate import federate
from sofa_fl.data.federated_data import FederatedData
from sofa_fl.data.natural.heart import read_heart
from sofa_fl.data.natural.languages import FILE, NAMES, one_hot, read_languages
from sofa_fl.data.natural.weather import STATE_OF, read_weather
from sofa_fl.data.scenarios import ScenarioConfig
from sofa_fl.errors import DataError
from sofa_fl.experiment.run.config import load_config

DAYS = 400  # of each station of the sample file, from June 2009 on


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A `weather.npz` of all stations and few days; an input tells its day and its station."""
    stations = np.array(sorted(STATE_OF))
    date = np.tile(14_400 + np.arange(DAYS, dtype=np.int32), len(stations))
    number = np.repeat(np.arange(len(stations)), DAYS)
    x = np.stack([date, number], axis=1).astype(np.float32)
    arrays = {"x": x, "y": date % 2, "station": stations[number], "date": date}
    np.savez(tmp_path / "weather.npz", **arrays)  # type: ignore[arg-type]
    return tmp_path


def rows_of(data: FederatedData, client: int) -> tuple[int, int]:
    own = data.clients[client]
    return len(own.train) + len(own.holdout), len(own.test)


def test_languages_are_what_the_file_says() -> None:
    records = read_languages()
    data = federate(DataConfig(name="languages"), 0)
    assert (len(data.clients), data.num_outputs, data.train.x.shape[1]) == (33, 28, 168)
    assert data.names == records.names
    assert set(data.names) == set(NAMES.values())
    families: dict[int, set[str]] = {}
    for name, family in zip(data.names, data.truth[0]):
        families.setdefault(family, set()).add(name)
    assert sorted(map(len, families.values())) == [1, 1, 4, 4, 7, 7, 9]
    assert {"Turkmen", "Uyghur", "Uzbek", "Crimean Tatar"} in families.values()
    assert hashlib.sha256(FILE.read_bytes()).hexdigest().startswith("5ed75bceea11816a")
    assert (FILE.parent / "NOTICE.md").read_text().count("Creative Commons Attribution") == 2


def test_letters_are_one_hot() -> None:
    found = one_hot(np.array([[0, 27], [3, 1]], np.uint8)).reshape(2, 2, 28)
    np.testing.assert_array_equal(found.argmax(axis=2), [[0, 27], [3, 1]])
    np.testing.assert_array_equal(found.sum(axis=2), 1)


def test_samples_of_a_language_are_its_own_and_no_row_has_two_uses() -> None:
    records = read_languages()
    data = federate(DataConfig(name="languages"), 3)
    for client in (0, 16, 32):
        own = records.owner == client
        rows = data.clients[client]
        found = [*data.train.x[np.concatenate([rows.train, rows.holdout])], *data.test.x[rows.test]]
        # As many of each as the language has: all its rows, each used once.
        assert sorted(map(bytes, found)) == sorted(map(bytes, records.x[own]))
        assert len(rows.test) == round(0.2 * own.sum())


def test_fewer_samples_leave_the_test_as_it_is_and_the_seed_draws_both() -> None:
    whole, few, other = (
        federate(DataConfig(name="languages", samples=samples), seed)
        for samples, seed in ((None, 0), (300, 0), (300, 1))
    )
    assert {rows_of(few, client)[0] for client in range(33)} == {300}
    assert len(few.clients[0].holdout) == 15
    np.testing.assert_array_equal(whole.test.x, few.test.x)
    assert not np.array_equal(few.test.x, other.test.x)
    assert not np.array_equal(few.train.x[:300], other.train.x[:300])
    again = federate(DataConfig(name="languages", samples=300), 1)
    assert again.digest() == other.digest()


def test_choices_are_made_without_the_test_samples() -> None:
    whole = federate(DataConfig(name="languages"), 0)
    chosen = federate(DataConfig(name="languages", score_on="validation"), 0)
    for client in (0, 5):
        pool, _ = rows_of(whole, client)
        left, scored = rows_of(chosen, client)
        assert left + scored == pool
        assert scored == round(pool / 6)


def test_heart_is_flambys() -> None:
    """Counts as FLamby has them: 486 patients to train on, 254 to score, 13 inputs."""
    data = federate(DataConfig(name="heart"), 0)
    assert [rows_of(data, client) for client in range(4)] == [
        (199, 104), (172, 89), (30, 16), (85, 45)
    ]  # fmt: skip
    assert (data.train.x.shape[1], data.num_outputs, data.truth) == (13, 2, ())
    records = read_heart()
    assert records.is_test is not None
    for client in range(4):
        own = records.owner == client
        shares = [records.y[own & where].mean() for where in (records.is_test, ~records.is_test)]
        is_stratified = client != 2  # where all but one are ill
        assert not is_stratified or shares[0] == pytest.approx(shares[1], abs=0.02)
        rows = data.clients[client]
        x = data.train.x[np.concatenate([rows.train, rows.holdout])]
        np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-5)
        deviation = x.std(axis=0)
        np.testing.assert_allclose(deviation[deviation > 0.1], 1, atol=1e-4)
    first, second = (federate(DataConfig(name="heart"), seed) for seed in (0, 1))
    np.testing.assert_array_equal(first.test.x, second.test.x)  # the split is fixed


def test_whole_months_are_scored(folder: Path) -> None:
    records = read_weather((folder,))
    data = federate(DataConfig(name="weather", dir=str(folder)), 0)
    assert (len(data.clients), data.names[0], len(set(data.truth[0]))) == (49, "Adelaide", 9)
    assert records.unit is not None
    rows = data.clients[7]
    trained = np.concatenate([rows.train, rows.holdout])
    # Standardized by all that is trained on, so days can be read off the first input.
    np.testing.assert_allclose(data.train.x.mean(axis=0), 0, atol=1e-3)
    assert data.train.x.std(axis=0) == pytest.approx([1, 1], abs=1e-3)
    days = np.sort(np.concatenate([data.train.x[trained, 0], data.test.x[rows.test, 0]]))
    at = np.searchsorted(days, data.test.x[rows.test, 0])
    months = records.unit[records.owner == 7]
    assert not set(months[at]) & set(np.delete(months, at))
    assert len(set(months[at])) == round(0.2 * len(set(months)))


def test_years_come_in_order_and_a_station_comes_with_its_first(folder: Path) -> None:
    file = folder / "weather.npz"
    arrays = dict(np.load(file))
    new = (arrays["station"] == "Uluru") & (arrays["date"] < 14_610)  # 2010 begins
    np.savez(file, **{name: array[~new] for name, array in arrays.items()})
    scenario = ScenarioConfig(name="years", at=4, lasts=2)
    data = federate(DataConfig(name="weather", dir=str(folder), scenario=scenario), 0)
    first, second = data.stages
    assert (first.since, second.since) == (0, 4)
    assert set(second.clients) - set(first.clients) == {data.names.index("Uluru")}
    assert len(second.clients) == 49
    days = [
        np.concatenate([data.train.x[own.train, 0] for own in stage.clients.values()])
        for stage in data.stages
    ]
    assert days[0].max() < days[1].min()
    # Nothing that comes later has a say in what inputs look like at first.
    own = [np.concatenate([own.train, own.holdout]) for own in first.clients.values()]
    np.testing.assert_allclose(data.train.x[np.concatenate(own)].mean(axis=0), 0, atol=1e-3)


def test_years_are_for_weather_alone() -> None:
    with pytest.raises(DataError, match=r"years needs data in order.*data\.name=weather"):
        federate(DataConfig(scenario=ScenarioConfig(name="years")), 0)
    with pytest.raises(DataError, match=r"must be none with data.name=languages, got swap"):
        federate(DataConfig(name="languages", scenario=ScenarioConfig(name="swap")), 0)


def test_weather_is_not_shipped_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs weather\.npz.*pass --data-dir"):
        federate(DataConfig(name="weather", dir=str(tmp_path)), 0)
    (tmp_path / "weather.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="must be an npz file with the arrays x, y, station, date"):
        federate(DataConfig(name="weather", dir=str(tmp_path)), 0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partition": "iid"}, "data.partition=iid"),
        ({"num_clients": 5}, "data.num_clients=5"),
        ({"num_train": 100}, "data.num_train=100; remove it, or set data.samples"),
    ],
)
def test_clients_cannot_be_dealt_out_anew(given: dict[str, int], words: str) -> None:
    with pytest.raises(DataError, match=words):
        federate(DataConfig(name="languages", **given), 0)  # type: ignore[arg-type]


def test_few_samples_may_be_asked_for_but_not_be_there() -> None:
    data = federate(DataConfig(name="heart", samples=3), 0)
    assert {rows_of(data, client)[0] for client in range(4)} == {3}
    with pytest.raises(DataError, match=r"data\.min_samples=50 .* Zurich and Basel has fewer"):
        federate(DataConfig(name="heart", min_samples=50), 0)


def test_natural_is_no_partition_of_other_data() -> None:
    partition: PartitionName = "natural"
    with pytest.raises(DataError, match=r"natural is for data with natural clients"):
        federate(DataConfig(partition=partition), 0)


def test_a_configuration_says_who_the_clients_are_and_gets_a_network_that_fits() -> None:
    config = load_config(settings=["data.name=languages"])
    assert (config.data.num_clients, config.data.partition) == (33, "natural")
    assert (config.model.name, config.model.hidden) == ("mlp", (256, 128))
    assert load_config(settings=["data.name=heart"]).model.hidden == ()
    own = load_config(settings=["data.name=weather", "model.hidden=[7]"]).model
    assert (own.name, own.hidden) == ("mlp", (7,))
