"""Every way hands over the same numbers, keeps them as long as anyone looks, and leaks nothing."""

import gc

import numpy as np
import pytest

from backtest.agent.columns import host
from opencl.exchange import Copies, HostMemory
from opencl.exchange.pattern import check
from tests.opencl.exchange.routes import COLUMNS, ENVS, STEPS, label, launch, rollout, routes

ALL = {"trace": True, "values": True, "slots": True}
ROUNDS = 12


@pytest.fixture(scope="module", params=routes(), ids=label)
def way(request):
    device, kind, learner = request.param
    return kind(device, learner)


@pytest.fixture(scope="module")
def run(way):
    return rollout(way.device)


@pytest.fixture(scope="module")
def copied(way, run):
    """What plain copies return, of two rounds."""
    to = Copies(way.device)
    return [launch(run, to, stream, **ALL).read() for stream in (0, 1)]


def test_a_pattern_arrives(way):
    check(way)


@pytest.mark.parametrize("timed", [False, True])
def test_trajectories_are_those_of_copies(way, run, copied, timed):
    seen = launch(run, way, timed=timed, **ALL).read()
    np.testing.assert_array_equal(seen.start, copied[0].start)
    for name in COLUMNS:
        values, wanted = getattr(seen, name), getattr(copied[0], name)
        assert tuple(values.shape) == wanted.shape
        assert host(values).dtype == wanted.dtype
        np.testing.assert_array_equal(host(values), wanted, err_msg=name)
    assert seen.portfolio.shape == (STEPS + 1, ENVS, 13)
    if way.learner != "cpu":
        assert all(str(getattr(seen, name).device) == way.learner for name in COLUMNS[:5])


def test_a_result_lives_as_long_as_a_view_of_it(way, run, copied):
    kept = launch(run, way).read()
    part = kept.portfolio[3:, 2]
    del kept
    for _ in range(3):
        other = launch(run, way, 1).read()
        np.testing.assert_array_equal(host(other.portfolio), copied[1].portfolio)
        np.testing.assert_array_equal(host(part), copied[0].portfolio[3:, 2])
    first, second = launch(run, way).read(), launch(run, way, 1).read()
    for seen, wanted in zip((first, second), copied, strict=True):
        np.testing.assert_array_equal(host(seen.reward), wanted.reward)


def test_a_launch_is_read_as_often_as_one_likes(way, run):
    started = launch(run, way)
    assert started.read() is started.read()


def test_what_the_reader_writes_into_a_result_stays_there(way, run, copied):
    seen = launch(run, way).read()
    seen.reward[:] = 7
    again = launch(run, way).read()
    assert (host(seen.reward) == 7).all()
    np.testing.assert_array_equal(host(again.reward), copied[0].reward)


def test_rounds_use_the_same_memory(way, run):
    if not hasattr(way, "pool"):
        pytest.skip("copies have no pool")
    gc.collect()
    launch(run, way).read()
    made, idle = way.pool.made, way.pool.idle
    for stream in range(ROUNDS):
        launch(run, way, stream).read()
    assert (way.pool.made, way.pool.idle) == (made, idle)
    together = []
    for _ in range(3):  # three results at a time need more blocks, the same ones every time
        kept = [launch(run, way, stream).read() for stream in range(3)]
        together.append(way.pool.made)
        del kept
    assert len(set(together)) == 1


def test_a_launch_that_nobody_reads_takes_no_block_with_it(way, run, copied):
    for stream in range(ROUNDS):
        launch(run, way, stream)
    seen = launch(run, way).read()
    np.testing.assert_array_equal(host(seen.equity), copied[0].equity)


def test_host_memory_is_the_buffers_own(device):
    if device.kind != "cpu":
        pytest.skip("only a CPU device's buffers are host memory")
    import pyopencl as cl

    way = HostMemory(device)
    array = way.empty((5,), np.int32)
    way.begin(device.queue, [array])
    array.write(np.arange(5, dtype=np.int32))
    seen = way.finish(device.queue, {"x": array})["x"]
    seen[0] = 9
    found = np.empty(5, np.int32)
    cl.enqueue_copy(device.queue, found, array.buffer)
    assert found.tolist() == [9, 1, 2, 3, 4]
    assert not seen.flags.owndata
