import math

import numpy as np
import pytest

from backtest.features.volume import volume_imbalance, volume_ratio, volume_z


def test_z_score_of_log1p():
    volume = np.array([math.e - 1, math.e**3 - 1])  # log1p = 1, 3: mean 2, deviation 1
    assert volume_z(volume, 2) == pytest.approx([0, 1])


def test_ratio_of_averages():
    volume = np.array([1.0, 1.0, 4.0, 6.0])  # (4 + 6)/2 over 12/4
    assert volume_ratio(volume, 2, 4) == pytest.approx([0, 0, 0, 5 / 3])


def test_imbalance_counts_bars_with_a_difference():
    volume = np.array([9.0, 1.0, 2.0, 5.0])
    difference = np.array([0.0, 1.0, -3.0, 0.0])
    # bars 1-2: (1 - 2)/3; bars 2-3: (-2 + 0)/7; a window with bar 0 does not count
    assert volume_imbalance(volume, difference, 2) == pytest.approx([0, 0, -1 / 3, -2 / 7])


def test_no_or_constant_volume_gives_zero():
    for volume in (np.zeros(100), np.full(100, 7.0)):
        assert not volume_z(volume).any()
    assert not volume_ratio(np.zeros(100)).any()
    assert not volume_imbalance(np.zeros(100), np.ones(100)).any()
