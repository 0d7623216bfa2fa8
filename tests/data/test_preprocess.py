from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from sofa_fl.data.dealing import deal
from sofa_fl.data.own import from_arrays
from sofa_fl.data.preprocess import Column, fit_preprocessing
from sofa_fl.experiment.scoring.outputs import RawRows

NAN = np.nan
COLUMNS = (Column("age"), Column("kind", (1.0, 2.0)), Column("city", (0.0, 1.0), ("Oslo", "Rome")))
RAW = np.array([[10, 1, 0], [30, 2, 1], [NAN, 2, 1], [20, NAN, NAN]], dtype=np.float32)


def test_blanks_and_categories() -> None:
    fitted = fit_preprocessing(RAW, columns=COLUMNS, standardize=False)
    assert fitted.mean[0] == 20
    wanted = [[10, 1, 0, 1, 0], [30, 0, 1, 0, 1], [20, 0, 1, 0, 1], [20, 0, 0, 0, 0]]
    assert_array_equal(fitted.apply(RAW), np.array(wanted, dtype=np.float32))
    new = np.array([[NAN, 3, -1]], dtype=np.float32)  # values that no training row has
    assert_array_equal(fitted.apply(new), np.array([[20, 0, 0, 0, 0]], dtype=np.float32))


def test_standardized_by_the_rows_that_it_was_fitted_to() -> None:
    fitted = fit_preprocessing(RAW, columns=COLUMNS, standardize=True)
    inputs = fitted.apply(RAW)
    assert inputs.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert inputs.std(axis=0) == pytest.approx(1, abs=1e-6)
    assert inputs[2, 0] == 0, "a blank is the mean"
    blank = np.array([[NAN, 1.0], [NAN, 3.0]], dtype=np.float32)
    assert_array_equal(fit_preprocessing(blank, standardize=True).apply(blank), [[0, -1], [0, 1]])


@pytest.mark.parametrize("standardize", [False, True])
def test_the_same_within_a_network(standardize: bool) -> None:
    fitted = fit_preprocessing(RAW, columns=COLUMNS, standardize=standardize)
    outputs = RawRows(fitted)(torch.from_numpy(RAW)).numpy()
    assert_array_equal(outputs, fitted.apply(RAW))
    pictures = np.random.default_rng(0).integers(0, 255, (7, 3, 2, 2)).astype(np.uint8)
    whole = fit_preprocessing(pictures, standardize=standardize)
    again = RawRows(whole)(torch.from_numpy(pictures.astype(np.float32))).numpy()
    assert_array_equal(again, whole.apply(pictures))


def test_dealt_data_keep_it() -> None:
    x = 5 + 3 * np.arange(40, dtype=np.float32)[:, None]
    data = deal(from_arrays(x, np.arange(40) % 2), np.arange(40) % 4, standardize=True)
    assert data.preprocessing is not None
    assert_array_equal(data.preprocessing.apply(x[:1] * 0 + data.preprocessing.mean[0]), [[0]])
    assert set(data.preprocessing.apply(x)[:, 0]) == {*data.train.x[:, 0], *data.test.x[:, 0]}
    assert deal(from_arrays(x, np.arange(40) % 2), np.arange(40) % 4).preprocessing is None
