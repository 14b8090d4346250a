from backtest.features.names import ADX, COLUMNS, CUSUM, FEATURES, MARKET_DIM, WARMUP


def test_there_are_42_features_and_adx_and_cusum_keep_their_places():
    assert (MARKET_DIM, ADX, CUSUM) == (42, 40, 41)
    assert len(set(COLUMNS)) == 84
    assert WARMUP == 605


def test_places_follow_the_specification():
    blocks = {0: "x_1", 9: "x_89", 10: "body", 14: "channel_10", 17: "channel_120"}
    blocks |= {20: "atr_14", 22: "volume_z_60", 25: "zero_volume", 26: "rsi_14", 29: "macd"}
    blocks |= {30: "plus_di_14", 33: "autocorrelation_60", 35: "efficiency_20", 36: "day_sin"}
    assert {place: FEATURES[place] for place in blocks} == blocks
