import numpy as np
import pytest

from backtest.agent import tensor_file
from backtest.errors import StoreError

ARRAYS = {
    "scalar": np.array(3.5),
    "bytes": np.arange(5, dtype=np.uint8),
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not in C order
    "empty": np.zeros((0, 4), np.int32),
}
META = {"name": "x", "third": 1 / 3, "list": [1, None, 2.5]}


@pytest.fixture
def path(tmp_path):
    result = tmp_path / "a.safetensors"
    tensor_file.write(result, "kind", 2, ARRAYS, META)
    return result


def test_round_trip_is_exact(path):
    arrays, metadata = tensor_file.read(path, "kind", 2)
    assert metadata == META
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array), name
        assert arrays[name].shape == array.shape


def test_nothing_else_is_left_beside_it(path):
    tensor_file.write(path, "kind", 2, ARRAYS, META)
    assert [p.name for p in path.parent.iterdir()] == ["a.safetensors"]


def test_a_failed_write_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        tensor_file.write(path, "kind", 2, ARRAYS, {"bad": float("nan")})
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nothing\.safetensors: no such file"):
        tensor_file.read(tmp_path / "nothing.safetensors", "kind", 2)


@pytest.mark.parametrize("keep", [0, 4, 60, 300, -1])
def test_a_truncated_file_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StoreError, match=r"a\.safetensors: truncated"):
        tensor_file.read(path, "kind", 2)


def test_a_damaged_byte_is_refused(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="do not match their hash"):
        tensor_file.read(path, "kind", 2)


def test_another_kind_or_version_is_refused(path):
    with pytest.raises(StoreError, match="holds kind, not other"):
        tensor_file.read(path, "other", 2)
    with pytest.raises(StoreError, match="kind version 2, this release reads 3"):
        tensor_file.read(path, "kind", 3)


def test_foreign_tensors_are_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, tmp_path / "f.safetensors")
    with pytest.raises(StoreError, match="foreign tensors"):
        tensor_file.read(tmp_path / "f.safetensors", "kind", 2)
