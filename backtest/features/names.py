"""The 42 market features: their names, order and places, written here and nowhere else."""

# Lags of the close-to-close moves x_k, bars.
LAGS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
# Widths of the Donchian channels, bars.
CHANNELS = (10, 20, 55, 120)

FEATURES = (
    *(f"x_{lag}" for lag in LAGS),  # 0-9, sigmas of a k-bar move
    "body",  # 10-13, sigmas
    "bar_range",
    "upper_wick",
    "lower_wick",
    *(f"channel_{width}" for width in CHANNELS),  # 14-17, [-1, 1]
    "sigma_ratio_8",  # 18-21
    "sigma_ratio_21",
    "atr_14",
    "parkinson_20",
    "volume_z_60",  # 22-25, 0 where volume is unknown
    "volume_ratio_5_60",
    "volume_imbalance_20",
    "zero_volume",
    "rsi_14",  # 26-29
    "stochastic_14",
    "cci_20",
    "macd",
    "plus_di_14",  # 30-32, 0-1
    "minus_di_14",
    "dx_14",
    "autocorrelation_60",  # 33-35
    "variance_ratio_60",
    "efficiency_20",
    "day_sin",  # 36-39, of the bar's close in UTC
    "day_cos",
    "week_sin",
    "week_cos",
    "adx",  # 40, 0-100, raw
    "cusum",  # 41, >= 0, raw
)
MARKET_DIM = len(FEATURES)
ADX = FEATURES.index("adx")
CUSUM = FEATURES.index("cusum")

# Largest magnitude of every feature but ADX and CUSUM, which stay raw.
FEATURE_LIMIT = 10.0

# The same functions on a slower series, and the two as one row of 84.
SLOW_SCALE = 5  # bars of the slow series
SLOW_FEATURES = tuple(f"slow_{name}" for name in FEATURES)
COLUMNS = FEATURES + SLOW_FEATURES

# Rows before this one may still hold the 0 of an unfilled window: 121 slow bars.
WARMUP = 121 * SLOW_SCALE
