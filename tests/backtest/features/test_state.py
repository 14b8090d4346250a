from dataclasses import replace

import numpy as np
import pytest

from backtest.errors import ConfigError, DataError
from backtest.features.calendar import day_of_year
from backtest.features.scaler import Scaler
from backtest.features.state import bar_state
from backtest.features.table import compute
from backtest.market.layout import BAR_SLOTS
from tests.backtest.features.example import TICK, random_bars, rolled

GAP = 40.0
TABLE = compute(rolled(random_bars(1000), {700: GAP}))
SCALER = Scaler.fit(TABLE.rows(605, 900))
STATE = bar_state(TABLE, SCALER, tick_size=TICK)


def slots(state):
    """The columns by their slot of the 128."""
    return dict(zip(BAR_SLOTS, state.T, strict=True))


def test_shape_and_scaled_features():
    assert STATE.shape == (1000, 115)
    assert STATE.dtype == np.float32
    scaled = SCALER.transform(TABLE.rows(0, 1000)).astype(np.float32)
    by_slot = slots(STATE)
    for slot in range(84):
        assert np.array_equal(by_slot[slot], scaled[:, slot])
    assert np.abs(STATE[:, :84]).max() <= 5


def test_recent_differences_are_oldest_first_and_without_the_gap():
    by_slot = slots(STATE)
    for bar in (28, 605, 699, 700, 710, 727, 999):
        scale = max(TABLE.sigma[bar], TICK)
        for place, slot in enumerate(range(84, 112)):
            b = bar - 27 + place
            move = TABLE.close[b] - TABLE.close[b - 1] - (GAP if b == 700 else 0)
            assert by_slot[slot][bar] == np.float32(np.clip(move / scale, -10, 10))


def test_bars_before_the_first_have_no_difference():
    by_slot = slots(STATE)
    assert not STATE[0, 84:112].any()
    assert not any(by_slot[slot][1] for slot in range(84, 111))
    assert by_slot[111][5] == np.float32(
        (TABLE.close[5] - TABLE.close[4]) / max(TABLE.sigma[5], TICK)
    )


def test_differences_are_clipped_at_ten_and_floored_by_the_tick():
    wide = slots(bar_state(TABLE, SCALER, tick_size=1000.0))
    assert max(np.abs(wide[slot]).max() for slot in range(84, 112)) < 0.1
    source = random_bars(700)
    close = source.close.copy()
    close[650:] += 5000
    jump = compute(replace(source, close=close))
    by_slot = slots(bar_state(jump, SCALER, tick_size=TICK))
    assert max(by_slot[slot].max() for slot in range(84, 112)) <= 10


def test_aux_and_day_of_year_take_their_slots():
    aux = np.linspace(-1, 1, 1000)
    by_slot = slots(bar_state(TABLE, SCALER, tick_size=TICK, aux=aux))
    assert np.array_equal(by_slot[121], aux.astype(np.float32))
    assert not slots(STATE)[121].any()
    sine, cosine = day_of_year(TABLE.time)
    assert np.array_equal(by_slot[126], sine.astype(np.float32))
    assert np.array_equal(by_slot[127], cosine.astype(np.float32))


def test_a_chunk_equals_the_whole():
    for start, stop in ((605, 700), (700, 1000), (0, 3), (28, 29)):
        history = TABLE.slice(max(start - 28, 0), stop)
        part = bar_state(history, SCALER, tick_size=TICK, start=start, stop=stop)
        assert np.array_equal(part, STATE[start:stop])


def test_missing_history_is_an_error_not_a_zero():
    with pytest.raises(DataError, match=r"bar 605 needs bars from 577 on.*begins at bar 578"):
        bar_state(TABLE.slice(578, 700), SCALER, tick_size=TICK, start=605)
    with pytest.raises(DataError, match="aux has shape"):
        bar_state(TABLE, SCALER, tick_size=TICK, aux=np.zeros(3))
    with pytest.raises(ConfigError, match="tick_size"):
        bar_state(TABLE, SCALER, tick_size=0.0)
