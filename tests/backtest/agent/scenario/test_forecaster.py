import math

import numpy as np
import pytest
import torch

from backtest.agent.scenario.forecaster import Forecaster
from backtest.agent.scenario.mixture import RESOLUTION, coverage, deviation, nll, probability_below
from backtest.agent.scenario.paths import future_paths
from backtest.agent.scenario.training import calibration, train_forecaster
from backtest.errors import DataError
from tests.backtest.agent.scenario.cases import section

QUICK = {"forecaster_updates": 60, "forecaster_batch": 32}


def market(n, phi, seed=0, noise=84):
    """Differences of an AR(1), state slots 0-111 with `noise` columns before the 28 lags."""
    rng = np.random.default_rng(seed)
    step = np.zeros(n + 28)
    for t in range(1, len(step)):
        step[t] = phi * step[t - 1] + rng.normal()
    slots = np.zeros((n, 112), np.float32)
    slots[:, :noise] = rng.normal(size=(n, noise))
    for lag in range(28):  # oldest first; the last column is the latest difference
        slots[:, 84 + lag] = step[lag + 1 : lag + 1 + n]
    close = 1000 + np.cumsum(step)[28:]
    return slots, close


def paths(close, horizon, sigma=1.0):
    n = len(close)
    return future_paths(close, close, np.zeros(n, np.bool_), np.full(n, sigma), 0.01, horizon)


def test_paths_by_hand():
    close = np.array([10.0, 11, 13, 20, 21, 21])
    open_ = np.array([10.0, 10, 12, 19, 21, 21])
    roll = np.array([0, 0, 0, 1, 0, 0], np.bool_)  # bar 3 gains 1 since its open, not 7
    sigma = np.array([1.0, 2, 0.1, 0.01, 1, 1])
    got = future_paths(open_, close, roll, sigma, 0.2, 2)
    want = [[1, 2], [1, 0.5], [5, 5], [5, 0]]  # bars 2 and 3 are scaled by the tick of .2
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.dtype == np.float32
    assert future_paths(open_, close, roll, sigma, 0.01, 2)[2].tolist() == [10, 10]  # clipped
    assert future_paths(open_, close, roll, sigma, 0.2, 6).shape == (0, 6)


def test_no_label_reaches_the_stop_of_the_rows():
    _, close = market(300, 0.3)
    stop, horizon = 200, 6
    want = paths(close[:stop], horizon)
    assert len(want) == stop - horizon
    later = close.copy()
    later[stop:] += 100
    assert np.array_equal(paths(later[:stop], horizon), want)
    # the last row's last label is the last difference of the rows
    assert want[-1, -1] == np.float32(close[stop - 1] - close[stop - 2])


def test_bars_after_the_train_rows_do_not_matter():
    slots, close = market(400, 0.3)
    sizes = section(**QUICK)

    def fit(slots, close, stop=300):
        return train_forecaster(slots[:stop], paths(close[:stop], 4), sizes, 0, 5).state

    first = fit(slots, close)
    other_slots, other_close = slots.copy(), close.copy()
    other_slots[300:] += 1
    other_close[300:] *= 2
    again = fit(other_slots, other_close)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    # rows without a label inside the train rows are not read either
    other_slots[296:] += 1
    again = fit(other_slots, other_close)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    other_slots[:20] += 1
    moved = fit(other_slots, other_close)
    assert not all(np.array_equal(first[name], moved[name]) for name in first)


def test_seed_and_stream_decide_the_weights():
    slots, close = market(200, 0.3)
    label = paths(close, 4)

    def fit(seed, stream):
        return train_forecaster(slots, label, section(**QUICK), seed, stream).state["latent.bias"]

    assert np.array_equal(fit(0, 5), fit(0, 5))
    assert not np.array_equal(fit(0, 5), fit(1, 5))
    assert not np.array_equal(fit(0, 5), fit(0, 6))


def test_it_learns_a_planted_signal_and_is_calibrated():
    sizes = section(forecaster_hidden=32, forecaster_updates=300)
    slots, close = market(6000, 0.5)
    fitted = train_forecaster(slots, paths(close, 4), sizes, 0, 0)
    fresh_slots, fresh_close = market(2000, 0.5, seed=1)
    fresh = paths(fresh_close, 4)
    report = calibration(fitted.state, fresh_slots, fresh, sizes)
    # the best possible: noise of 1; white noise of the AR(1)'s spread 1/sqrt(1 - .25) = 1.155
    best = 0.5 * math.log(2 * math.pi * math.e)
    assert report["nll_noise"] == pytest.approx(best + math.log(1 / math.sqrt(0.75)), abs=0.03)
    # a step ahead gains .144, two .032, ...: .046 a step in all
    assert report["nll"] < report["nll_noise"] - 0.015
    assert report["coverage_50"] == pytest.approx(0.5, abs=0.04)
    assert report["coverage_90"] == pytest.approx(0.9, abs=0.03)
    assert fitted.report["nll"] == pytest.approx(report["nll"], abs=0.06)
    forecaster = Forecaster(sizes)
    forecaster.load_numpy(fitted.state)
    with torch.no_grad():
        forecast = forecaster(torch.from_numpy(fresh_slots))
    mean = (forecast.log_weight.exp()[..., None] * forecast.mu).sum(1)[:, 0].numpy()
    assert np.corrcoef(mean, fresh_slots[:, 111])[0, 1] > 0.8  # the sign of phi
    assert np.corrcoef(mean[: len(fresh)], fresh[:, 0])[0, 1] > 0.4


def test_the_best_update_by_held_out_rows_is_kept():
    # noise and few rows: more training only remembers them
    slots, close = market(400, 0.0)
    long = section(forecaster_updates=200, forecaster_rate=5e-3, forecaster_hidden=64)
    fitted = train_forecaster(slots, paths(close, 4), long, 0, 0)
    assert fitted.updates < 200
    assert fitted.report["nll"] < fitted.report["nll_noise"] + 0.1


def test_few_rows_are_all_trained_on():
    slots, close = market(40, 0.0)
    fitted = train_forecaster(slots, paths(close, 4), section(**QUICK), 0, 0)
    assert fitted.updates == 60


def test_no_row_and_no_likelihood_are_named():
    slots, close = market(4, 0.0)
    with pytest.raises(DataError, match="no 4 bars after any bar"):
        train_forecaster(slots, paths(close, 4), section(), 0, 0)
    slots, close = market(400, 0.0)
    slots[3] = np.nan
    with pytest.raises(DataError, match="not finite"):
        train_forecaster(slots, paths(close, 4), section(**QUICK), 0, 0)


def forecast(rows=64, seed=0):
    """Of a forecaster with random weights, and paths."""
    sizes = section()
    forecaster = Forecaster(sizes)
    forecaster.initialise(np.random.default_rng(seed))
    with torch.no_grad():
        forecaster.mu.weight *= 10
        forecaster.log_u.weight *= 5
    rng = np.random.default_rng(seed + 1)
    slots = torch.from_numpy(rng.normal(size=(rows, 112)).astype(np.float32))
    path = torch.from_numpy(rng.normal(size=(rows, 4)).astype(np.float32))
    with torch.no_grad():
        return forecaster(slots), path


def test_the_likelihood_is_that_of_whole_paths():
    made, path = forecast()
    want = []
    for b in range(len(path)):
        total = 0.0
        for s in range(3):
            density = math.exp(made.log_weight[b, s])
            for h in range(4):
                sd = math.sqrt(math.exp(2 * made.log_u[b, s, h]) + RESOLUTION**2)
                z = (path[b, h] - made.mu[b, s, h]) / sd
                density *= math.exp(-z * z / 2) / (sd * math.sqrt(2 * math.pi))
            total += density
        want.append(-math.log(total) / 4)
    np.testing.assert_allclose(nll(made, path).numpy(), want, rtol=1e-4)


def test_bands_hold_what_they_promise():
    made, _ = forecast(400)
    draws = np.random.default_rng(0)
    scenario = np.array([draws.choice(3, p=p / p.sum()) for p in made.log_weight.exp().double()])
    rows = np.arange(400)
    mean, sd = made.mu.numpy()[rows, scenario], deviation(made).numpy()[rows, scenario]
    path = torch.from_numpy((mean + sd * draws.normal(size=mean.shape)).astype(np.float32))
    # 1,600 draws: three standard errors are .04
    for band in (0.5, 0.9):
        assert coverage(made, path, band).mean().item() == pytest.approx(band, abs=0.04)
    wide = torch.full((400, 4), 1e3)
    assert (probability_below(made, wide) > 1 - 1e-6).all()
    assert (coverage(made, wide, 0.9) == 0).all()


def test_columns_behind_the_slots_are_the_forecast():
    sizes = section()
    forecaster = Forecaster(sizes)
    forecaster.initialise(np.random.default_rng(0))
    slots = torch.randn(7, 128)
    columns = forecaster.context(slots)
    made = forecaster(slots)
    assert columns.shape == (7, 3 * 4 * 6 + 3 * 4 + 3)
    assert torch.equal(columns[:, :72], made.latent.flatten(1))
    assert torch.equal(columns[:, 72:84], made.log_u.flatten(1))
    torch.testing.assert_close(columns[:, 84:].sum(1), torch.ones(7))
    assert not columns.requires_grad
    # the account and the forecast of slot 121 are not read
    slots[:, 112:] += 1
    assert torch.equal(forecaster.context(slots), columns)
