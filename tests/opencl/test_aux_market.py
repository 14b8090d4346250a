"""The forecast of a foundation through a rollout: state slot, bypass, and the bonus it earns."""

import numpy as np
import pytest

from backtest import rng
from backtest.agent.foundation import lay_foundation
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import AUX_COLUMN
from backtest.config import parse
from backtest.experiment import FoldMarket
from backtest.market.layout import End, Formula
from backtest.market.reward import Z_LIMIT
from backtest.market.walk import walk_actions
from backtest.splits import Fold, Window
from opencl.rollout import Rollout, Shape
from tests.opencl.wrapping import assert_same_records
from tests.tables import rough_table

FOLD = Fold(0, "2001", Window(60, 400), Window(410, 500), Window(510, 600))
SHAPE = Shape((16, 12), 11, ("direction", "magnitude"))
STEPS, E = 120, 24
KEY = rng.key(0, "X", "2001")
STREAM = int(rng.stream(rng.Stage.COLLECT, 0))


def market_of(formula):
    config = parse(
        {
            "reward": {"formula": formula.name.lower()},
            "aux": {"hidden": 4, "updates": 40, "batch": 32},
            "instrument": {"tick_size": 0.25, "max_position": 3.0, "commission": 0.01},
            # some episodes are ruined while they hold a position
            "market": {"initial_capital": 25.0, "ruin_level": 12.0},
        }
    )
    table = rough_table(620, seed=2)
    market = FoldMarket.fit(config, config.instrument, FOLD, table)
    _, state = market.train(table)
    rows = table.slice(FOLD.train.start, FOLD.train.stop)
    return market, table, lay_foundation(config, rows, state, tick_size=0.25, seed=0, stream=1)


def by_hand(tape, trace, action_bars, formula):
    """Return r_aux of every step from positions and results alone; a ruin's are left at NaN."""
    beta = float(tape.params["scale_beta"])
    wanted = np.zeros(trace.shape)
    for e in range(trace.shape[1]):
        position, entry = 0.0, 0.0
        for t in range(len(trace)):
            step = trace[t, e]
            if step["end"] == End.DEAD:
                break
            bar = action_bars[t, e]
            aux = float(tape.aux[bar])
            held = float(step["position"])
            if step["segment_complete"]:
                forecast = entry if formula is Formula.CALIBRATED else aux
                profit = max(0.0, float(step["trade_result"]))
                if formula is Formula.CALIBRATED:
                    scale = max(float(tape.bars["sigma"][bar]), 0.25) * 3
                    profit = min(profit / scale, Z_LIMIT)
                wanted[t, e] = beta * max(0.0, forecast * np.sign(position)) * profit
            if step["end"] == End.TERMINATED:
                wanted[t, e] = np.nan
            if held != 0 and (position == 0 or np.sign(held) != np.sign(position)):
                entry = aux
            position = held
    return wanted


@pytest.mark.parametrize("formula", Formula)
def test_the_bonus_follows_the_foundations_forecast(device, formula):
    market, table, foundation = market_of(formula)
    tape, state = market.train(table, foundation)
    run = Rollout(device, tape, state, SHAPE, "lanes")
    policy = random_policy(SHAPE.hidden, SHAPE.atoms, alpha=1.0)
    start = np.random.default_rng(0).integers(60, 400 - STEPS, (1, E))
    seen = run.run([policy], start, STEPS, KEY[None], stage_round=STREAM, epsilon=0.3, trace=True)
    walk = walk_actions(tape, seen.start, seen.action)
    assert_same_records(walk.result, seen.trace)
    bars = seen.start + np.arange(STEPS)[:, None] - tape.start
    wanted = by_hand(tape, seen.trace, bars, formula)
    known = np.isfinite(wanted)
    np.testing.assert_allclose(seen.trace["r_aux"][known], wanted[known], rtol=1e-5, atol=1e-6)
    assert (wanted[known] > 0).sum() > 20
    assert (~known).any() and (seen.trace["end"] == End.TERMINATED).sum() == (~known).sum()
    # block 0 has no forecast, so it earns no bonus and opens trades without one
    first = bars < len(tape.bars) // 5
    assert (tape.aux[bars[first]] == 0).all()
    if formula is Formula.COMPOSITE:
        assert (seen.trace["r_aux"][first] == 0).all()


def test_the_kernel_reads_slot_121_through_alpha_alone(device):
    market, table, foundation = market_of(Formula.CALIBRATED)
    tape, state = market.validation(table, foundation)
    plain, routed = (random_policy(SHAPE.hidden, SHAPE.atoms, alpha=a) for a in (0.0, 2.0))
    for policy in (plain, routed):
        policy.W1_bar[:, AUX_COLUMN] = 0
    turned = state.copy()
    turned[:, AUX_COLUMN] *= -1
    start = np.full((2, 1), tape.start)
    keys = np.repeat(KEY[None], 2, axis=0)

    def values(states):
        run = Rollout(device, tape, states, SHAPE, "lanes")
        out = run.run([plain, routed], start, 1, keys, stage_round=STREAM, values=True)
        return out.values[0]

    (a0, a1), (b0, b1) = values(state), values(turned)
    np.testing.assert_array_equal(a0, b0)
    np.testing.assert_allclose(a1[:4] - b1[:4], 2 * state[0, AUX_COLUMN] * routed.alpha, atol=1e-5)
    np.testing.assert_array_equal(a1[4:], b1[4:])
    np.testing.assert_allclose(a1[:4] - a0[:4], state[0, AUX_COLUMN] * routed.alpha, atol=1e-5)
