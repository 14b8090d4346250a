"""Which rows of the train window train the policy, and which skills are formed on."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.foundation import Foundation
from backtest.agent.weights import AUX_COLUMN
from backtest.config import Instrument, parse
from backtest.experiment import FoldMarket
from backtest.splits import Fold, Window
from tests.tables import rough_table

FOLD = Fold(0, "x", Window(50, 150), Window(160, 200), Window(210, 240))
TABLE = rough_table(240, 3, base=100.0)


def fitted(share, table=TABLE):
    config = parse({} if share is None else {"skills": {"collect_from": share}})
    return FoldMarket.fit(config, Instrument(tick_size=0.25), FOLD, table)


class Forecasts(Foundation):
    """Out-of-fold forecasts count up from 1; of any other row the forecast is -1."""

    def forecast(self, states):
        return np.full(len(states), -1, np.float32)


def foundation(rows):
    return Forecasts(aux=object(), aux_train=np.arange(1, rows + 1, dtype=np.float32))


def test_all_of_it_serves_both():
    market = fitted(None)
    assert market.learning == market.collection == FOLD.train
    given = foundation(100)
    for tape, state in (market.train(TABLE, given), market.collected(TABLE, given)):
        assert (tape.start, tape.stop) == (50, 150)
        # skills are formed on rows that fitted the head: out of fold there, too
        assert np.array_equal(tape.aux, given.aux_train)
        assert np.array_equal(state[:, AUX_COLUMN], given.aux_train)


@pytest.mark.parametrize(("share", "stop"), [(0.5, 100), (0.25, 75), (0.999, 149), (0.333, 83)])
def test_the_first_part_trains_and_the_rest_is_collected_on(share, stop):
    market = fitted(share)
    assert market.learning == Window(50, stop) and market.collection == Window(stop, 150)
    given = foundation(stop - 50)
    tape, _ = market.train(TABLE, given)
    assert (tape.start, tape.stop) == (50, stop) and tape.aux[-1] == stop - 50
    tape, state = market.collected(TABLE, given)
    assert (tape.start, tape.stop) == (stop, 150)
    assert (tape.aux == -1).all() and (state[:, AUX_COLUMN] == -1).all()
    tape, _ = market.validation(TABLE, given)
    assert (tape.start, tape.stop) == (159, 200) and (tape.aux == -1).all()


def test_nothing_behind_what_trains_the_policy_is_fitted_to():
    """Base and scaler, and with them every state of those rows."""
    later = np.arange(240) >= 100
    wild = replace(
        TABLE,
        close=np.where(later, 7.0 * TABLE.close, TABLE.close),
        market=np.where(later[:, None], TABLE.market + 5, TABLE.market),
    )
    one, two = fitted(0.5), fitted(0.5, wild)
    assert one.base == two.base == TABLE.close[50]
    assert np.array_equal(one.scaler.center, two.scaler.center)
    assert np.array_equal(one.scaler.scale, two.scaler.scale)
    assert not np.array_equal(fitted(None).scaler.center, fitted(None, wild).scaler.center)
    (tape, state), (other, seen) = one.train(TABLE), two.train(wild)
    assert tape.bars.tobytes() == other.bars.tobytes() and state.tobytes() == seen.tobytes()
