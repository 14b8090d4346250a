"""The bypass: hand-worked numbers, finite differences, torch's own gradient."""

import numpy as np
import torch

from backtest.agent.aux_bypass import aux_to_q_dir_backward, aux_to_q_dir_bias
from backtest.agent.random_policy import random_policy
from backtest.agent.weights import AUX_COLUMN, N_BAR, centred, forward
from backtest.market.layout import N_PORTFOLIO

F = np.float32


def floats(*values):
    return np.array(values, F)


def test_hand_worked():
    w, s = floats(3, -1, -1, -1), floats(0.5, -1)
    q = aux_to_q_dir_bias(np.zeros((2, 4), F), w, s)
    assert q.tolist() == [[1.5, -0.5, -0.5, -0.5], [-3, 1, 1, 1]]
    # rows' own gradients: action 0 too high by 2, action 2 too low by 4
    dq = np.array([[2, 0, 0, 0], [0, 0, -4, 0]], F)
    dw, ds = aux_to_q_dir_backward(dq, w, s, 0.5, floats(10, 20))
    # sums 1, 0, 4, 0; halved .5, 0, 2, 0; less their mean .625
    assert dw.tolist() == [-0.125, -0.625, 1.375, -0.625]
    assert ds.tolist() == [10 + 0.5 * 6, 20 + 0.5 * 4]
    assert aux_to_q_dir_backward(dq, w, s, 0.5)[1] is None


def loss(raw, q, s, action, target, weight):
    """Mean over rows of weight * Huber of what the chosen actions lack, in float64."""
    centred_ = raw - raw.mean()
    value = q + centred_ * s[:, None]
    error = value[np.arange(len(q)), action] - target
    small = np.abs(error) <= 1
    return (weight * np.where(small, error**2 / 2, np.abs(error) - 0.5)).mean()


def setting(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "raw": rng.normal(0, 1, 4),
        "q": rng.normal(0, 1, (rows, 4)),
        "s": np.tanh(rng.normal(0, 1, rows)),
        "action": rng.integers(0, 4, rows),
        "target": rng.normal(0, 2, rows),
        "weight": rng.uniform(0.2, 1, rows),
    }


def gradients(given):
    w = centred(given["raw"].astype(F))
    q, s = given["q"].astype(F), given["s"].astype(F)
    value = aux_to_q_dir_bias(q, w, s)
    rows = np.arange(len(q))
    dq = np.zeros_like(q)
    error = value[rows, given["action"]] - given["target"].astype(F)
    dq[rows, given["action"]] = given["weight"] * np.clip(error, -1, 1)
    return aux_to_q_dir_backward(dq, w, s, 1 / len(q), np.zeros(len(q), F))


def test_finite_differences():
    given = setting()
    dw, ds = gradients(given)
    for name, seen, places in (("raw", dw, range(4)), ("s", ds, range(0, 200, 17))):
        for i in places:
            slopes = []
            for sign in (1, -1):
                moved = given | {name: given[name].copy()}
                moved[name][i] += sign * 1e-5
                slopes.append(loss(**moved))
            assert abs((slopes[0] - slopes[1]) / 2e-5 - seen[i]) < 1e-6


def test_torch_agrees():
    given = {k: torch.from_numpy(v) for k, v in setting(seed=3).items()}
    raw, s = (given[name].clone().requires_grad_(True) for name in ("raw", "s"))
    value = given["q"] + (raw - raw.mean()) * s[:, None]
    taken = value.gather(1, given["action"][:, None])[:, 0]
    each = torch.nn.functional.huber_loss(taken, given["target"], reduction="none")
    (given["weight"] * each).mean().backward()
    dw, ds = gradients(setting(seed=3))
    np.testing.assert_allclose(dw, raw.grad, atol=1e-6)
    np.testing.assert_allclose(ds, s.grad, atol=1e-6)


def test_slot_121_alone_changes_the_policy_through_its_weights():
    """Forward of a whole policy: zero alpha is no bypass, another forecast is another value."""
    rng = np.random.default_rng(5)
    bars = rng.normal(0, 1, (50, N_BAR)).astype(F)
    account = rng.normal(0, 1, (50, N_PORTFOLIO)).astype(F)
    plain, routed = (random_policy((16, 12), 11, seed=1, alpha=a) for a in (0.0, 1.0))
    other = bars.copy()
    other[:, AUX_COLUMN] += 1
    for policy in (plain, routed):
        # nothing but the bypass reads slot 121
        policy.W1_bar[:, AUX_COLUMN] = 0
    np.testing.assert_array_equal(forward(plain, bars, account), forward(plain, other, account))
    moved = forward(routed, other, account) - forward(routed, bars, account)
    np.testing.assert_allclose(moved[:, :4], np.tile(routed.alpha, (50, 1)), atol=1e-5)
    np.testing.assert_array_equal(moved[:, 4:], 0)
    assert abs(float(routed.alpha.sum())) < 1e-6
    through = forward(routed, bars, account)
    by_hand = forward(plain, bars, account)
    by_hand[:, :4] = aux_to_q_dir_bias(by_hand[:, :4], routed.alpha, bars[:, AUX_COLUMN])
    np.testing.assert_array_equal(through, by_hand)
