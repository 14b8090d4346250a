import numpy as np

from backtest.features.channel import channel_place


def test_place_by_hand_includes_the_bar_itself():
    high = np.array([4.0, 6.0, 5.0, 8.0])
    low = np.array([2.0, 4.0, 4.0, 5.0])
    close = np.array([3.0, 5.0, 4.5, 8.0])
    # bars 0-2: 2..6, close 4.5 -> 2*2.5/4 - 1 = 0.25; bars 1-3: 4..8, close at the top
    assert channel_place(high, low, close, 3).tolist() == [0, 0, 0.25, 1]
    assert channel_place(-low, -high, -close, 3).tolist() == [0, 0, -0.25, -1]


def test_a_channel_without_height_gives_zero():
    flat = np.full(10, 0.1)
    assert not channel_place(flat, flat, flat, 3).any()
