"""curve.cl against NumPy: session closes and drawdowns of many curves, equal in every bit."""

import numpy as np
import pytest

from opencl.buffers import empty, upload
from opencl.curve import session_figures
from opencl.simulate import GROUP


@pytest.mark.parametrize("sessions", [1, 7, 60])
def test_curve_sessions(device, sessions):
    steps, capital = 60, 1000.0
    draw = np.random.default_rng(sessions)
    equity = (capital + np.cumsum(draw.normal(0, 40, (steps, 2 * GROUP)), 0)).astype(np.float32)
    equity[30:, 3] = -5.0  # more than all was lost
    ends = np.sort(draw.permutation(steps - 1)[: sessions - 1])
    ends = np.append(ends, steps - 1).astype(np.int32)
    held = upload(device, equity)
    closing, drawdown = session_figures(held, ends, capital)
    peak = np.maximum.accumulate(np.maximum(equity, np.float32(capital)), axis=0)
    np.testing.assert_array_equal(closing, equity[ends])
    np.testing.assert_array_equal(drawdown, ((peak - equity) / peak).max(axis=0))
    assert drawdown[3] > 1


def test_ends_must_cover_the_curves(device):
    held = empty(device, (5, GROUP), np.float32)
    for ends in ([2, 3], [3, 2, 4], [], [5]):
        with pytest.raises(ValueError, match="ends of sessions"):
            session_figures(held, np.array(ends, np.int32), 1.0)
