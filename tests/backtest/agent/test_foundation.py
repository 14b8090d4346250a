"""The foundation: what it may read, its file, and the forecast on tape and state."""

import threading

import numpy as np
import pytest

from backtest.agent.foundation import (
    Foundation,
    bypass_mode,
    lay_foundation,
    load_foundation,
    needed,
    of_arrays,
    open_foundation,
    save_foundation,
)
from backtest.config import Aux, Network, parse
from backtest.data.bars import Bars
from backtest.errors import DataError, StoreError
from backtest.experiment import AUX_COLUMN, FoldMarket
from backtest.features.table import compute
from backtest.lookahead import perturbed
from backtest.splits import WalkForward

CONFIG = parse({"aux": {"updates": 15, "batch": 32, "hidden": 4}})
FOLD = WalkForward(300, 100, 100, warmup=605).folds(1110)[0]
TRAIN, VALIDATION = FOLD.train, FOLD.validation


def bars(n=1110, seed=0):
    rng = np.random.default_rng(seed)
    close = 100 + np.cumsum(rng.normal(0, 1, n))
    open_ = close + rng.normal(0, 0.3, n)
    return Bars(
        instrument="X",
        time=np.arange(1, n + 1, dtype=np.int64) * 3600 * 10**9,
        open=open_,
        high=np.maximum(open_, close) + 0.1,
        low=np.minimum(open_, close) - 0.1,
        close=close,
        volume=rng.uniform(1, 9, n),
        roll=rng.random(n) < 0.01,
        session=np.arange(n, dtype=np.int32) // 24,
        volume_known=True,
    )


def market_of(source):
    table = compute(source)
    return FoldMarket.fit(CONFIG, CONFIG.instrument, FOLD, table), table


def laid(source, seed=0, config=CONFIG):
    market, table = market_of(source)
    _, state = market.train(table)
    rows = table.slice(TRAIN.start, TRAIN.stop)
    return lay_foundation(config, rows, state, tick_size=0.01, seed=seed, stream=5)


def same(a, b):
    assert a.report == b.report
    np.testing.assert_array_equal(a.aux_train, b.aux_train)
    assert a.arrays.keys() == b.arrays.keys()
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name])
    assert a.forecaster.keys() == b.forecaster.keys()
    for name, array in a.forecaster.items():
        np.testing.assert_array_equal(array, b.forecaster[name])


@pytest.fixture(scope="module")
def foundation():
    return laid(bars())


def test_bars_after_train_cannot_matter(foundation):
    """Everything from train.stop on changes: weights, forecasts and report are the same bits."""
    same(laid(perturbed(bars(), TRAIN.stop)), foundation)
    # and the bars before it do matter
    other = laid(perturbed(bars(), TRAIN.stop - 1))
    assert not np.array_equal(other.aux_train, foundation.aux_train) or any(
        not np.array_equal(a, other.arrays[n]) for n, a in foundation.arrays.items()
    )


def test_a_validation_forecast_reads_bars_up_to_its_own(foundation):
    market, table = market_of(bars())
    tape, _ = market.validation(table, foundation)
    assert tape.start == VALIDATION.start - 1 and (tape.aux != 0).all()
    cut = (VALIDATION.start + VALIDATION.stop) // 2
    _, changed = market_of(perturbed(bars(), cut))
    other, _ = market.validation(changed, foundation)
    known = cut - tape.start
    np.testing.assert_array_equal(other.aux[:known], tape.aux[:known])
    assert (other.aux[known:] != tape.aux[known:]).all()


def test_the_forecast_is_on_the_tape_and_in_slot_121(foundation):
    market, table = market_of(bars())
    plain = {name: getattr(market, name)(table) for name in ("train", "validation", "test")}
    for name, (tape, state) in plain.items():
        seen, slots = getattr(market, name)(table, foundation)
        assert (tape.aux == 0).all() and (state[:, AUX_COLUMN] == 0).all()
        np.testing.assert_array_equal(seen.aux, slots[:, AUX_COLUMN])
        np.testing.assert_array_equal(seen.bars, tape.bars)
        np.testing.assert_array_equal(
            np.delete(slots, AUX_COLUMN, 1), np.delete(state, AUX_COLUMN, 1)
        )
        wanted = foundation.aux_train if name == "train" else foundation.aux.forecast(state)
        np.testing.assert_array_equal(seen.aux, wanted)
    # the tensors of a policy are enough for bars outside the train window, and only there
    policy = of_arrays(foundation.arrays)
    np.testing.assert_array_equal(
        market.test(table, policy)[0].aux, market.test(table, foundation)[0].aux
    )
    with pytest.raises(DataError, match="0 out-of-fold forecasts for 287 train rows"):
        market.train(table, policy)


def test_without_aux_every_forecast_is_zero():
    none = laid(bars(), config=parse({"aux": {"enabled": False}}))
    assert none.aux is None and none.arrays == {} and none.report == {}
    market, table = market_of(bars())
    for name in ("train", "validation", "test"):
        tape, state = getattr(market, name)(table, none)
        assert (tape.aux == 0).all() and (state[:, AUX_COLUMN] == 0).all()
    assert of_arrays({}).aux is None


def test_who_stands_on_one():
    off = {"enabled": False}
    assert needed(CONFIG)
    assert not needed(parse({"aux": off}))
    assert needed(parse({"aux": off, "network": {"kind": "scenario"}}))
    assert bypass_mode(Aux()) == "detached"
    assert bypass_mode(Aux(grad="both")) == "both"
    assert bypass_mode(Aux(alpha=False)) == bypass_mode(Aux(enabled=False)) == "off"


def test_the_scenario_network_adds_its_forecaster():
    config = CONFIG.model_copy(
        update={
            "network": Network(
                kind="scenario",
                scenarios=2,
                horizon=3,
                latent=4,
                forecaster_hidden=8,
                forecaster_updates=3,
            )
        }
    )
    found = laid(bars(), config=config)
    assert "first.weight" in found.forecaster
    assert found.report.keys() >= {"aux_auc", "coverage_50", "coverage_90", "nll"}
    same(laid(perturbed(bars(), TRAIN.stop), config=config), found)


def test_states_and_rows_must_agree():
    market, table = market_of(bars())
    _, state = market.train(table)
    with pytest.raises(DataError, match="287 states for 300 train rows"):
        lay_foundation(
            CONFIG, table.slice(TRAIN.start, 905), state, tick_size=1.0, seed=0, stream=0
        )


class TestFile:
    def test_a_round_trip(self, foundation, tmp_path):
        path = tmp_path / "foundation_0.safetensors"
        save_foundation(path, foundation, "me")
        found, maker = load_foundation(path)
        assert maker == "me"
        same(found, foundation)
        save_foundation(path, Foundation(None, forecaster={"first.bias": np.ones(2, "f4")}), "x")
        found, _ = load_foundation(path)
        assert found.aux is None and found.forecaster["first.bias"].tolist() == [1, 1]

    def test_whoever_comes_first_makes_it(self, foundation, tmp_path):
        path, made = tmp_path / "fold" / "foundation_3.safetensors", []

        def lay():
            made.append(1)
            return foundation

        found = []
        threads = [
            threading.Thread(target=lambda: found.append(open_foundation(path, "a", lay)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1 and len(found) == 3
        for one in found:
            same(one, foundation)
        # another maker's is not used
        open_foundation(path, "b", lay)
        assert len(made) == 2 and load_foundation(path)[1] == "b"

    def test_a_truncated_one_is_refused(self, foundation, tmp_path):
        path = tmp_path / "foundation_0.safetensors"
        save_foundation(path, foundation, "me")
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(StoreError, match="truncated"):
            open_foundation(path, "me", lambda: foundation)
