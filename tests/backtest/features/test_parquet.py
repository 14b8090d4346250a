import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backtest.errors import DataError
from backtest.features.names import FEATURES, SLOW_FEATURES
from backtest.features.parquet import read_features, write_features
from backtest.features.table import SERIES, code_version, compute, feature_hash
from tests.backtest.features.example import random_bars

TABLE = compute(random_bars(400)).slice(100, 400)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "features" / "window.parquet"
    write_features(TABLE, path)
    assert [file.name for file in path.parent.iterdir()] == ["window.parquet"]
    back = read_features(path)
    assert feature_hash(back) == feature_hash(TABLE)
    for name in SERIES:
        assert back[name].dtype == TABLE[name].dtype
    assert (back.first_bar, back.volume_known) == (100, True)
    assert back.bars_hash == TABLE.bars_hash


def test_the_file_speaks_the_names_of_the_specification(tmp_path):
    write_features(TABLE, tmp_path / "f.parquet")
    schema = pq.read_schema(tmp_path / "f.parquet")
    prices = ["open", "high", "low", "close"]
    head = ["time", "bar", *prices, "sigma", "volume", "roll", "cusum_event"]
    assert schema.names == [*head, *FEATURES, *SLOW_FEATURES]
    assert schema.field("time").type == pa.timestamp("ns", "UTC")
    assert schema.field("bar").type == pa.int64()
    assert schema.metadata[b"adx_seed"] == b"talib"
    assert schema.metadata[b"code_version"].decode() == code_version()
    assert schema.metadata[b"feature_hash"].decode() == feature_hash(TABLE)


def test_broken_files_are_refused_by_name(tmp_path):
    path = tmp_path / "f.parquet"
    with pytest.raises(DataError, match=r"f\.parquet: no such feature file"):
        read_features(path)
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_features(path)
    write_features(TABLE, path)
    whole = pq.read_table(path)
    pq.write_table(whole.drop_columns(["adx"]), path)
    with pytest.raises(DataError, match=r"column adx is missing \(1 in all\)"):
        read_features(path)
    pq.write_table(whole.replace_schema_metadata({"adx_seed": "talib"}), path)
    with pytest.raises(DataError, match=r"metadata .*bars_hash"):
        read_features(path)
    bar = whole.schema.get_field_index("bar")
    pq.write_table(whole.set_column(bar, "bar", pa.array(np.arange(300))), path)
    with pytest.raises(DataError, match="does not count up from 100"):
        read_features(path)
