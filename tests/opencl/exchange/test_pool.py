"""Blocks are rounded up, reused when they fit, and dropped beyond what may lie idle."""

from dataclasses import dataclass

import pytest

from backtest.errors import DeviceError
from opencl.exchange.pool import Pool


@dataclass(eq=False)
class Block:
    nbytes: int


def test_sizes_are_rounded_up_and_blocks_come_back():
    pool = Pool(Block, unit=8, kept=100)
    block = pool.take(9)
    assert block.nbytes == 16
    pool.give(block)
    assert pool.idle == 16
    assert pool.take(12) is block
    assert (pool.made, pool.idle) == (1, 0)
    assert pool.take(0).nbytes == 8


def test_the_smallest_that_fits_is_taken_and_none_that_is_far_too_large():
    pool = Pool(Block, unit=1, kept=1000)
    blocks = [pool.take(size) for size in (40, 30, 20)]
    for block in blocks:
        pool.give(block)
    assert pool.take(21) is blocks[1]
    assert pool.take(9) not in blocks  # 20 is more than twice that
    assert pool.take(10) is blocks[2]


def test_idle_blocks_beyond_the_limit_are_dropped_the_oldest_first():
    pool = Pool(Block, unit=1, kept=60)
    blocks = [pool.take(size) for size in (30, 31, 29)]
    for block in blocks:
        pool.give(block)
    assert pool.idle == 60
    assert pool.take(31) is blocks[1]
    assert pool.take(30) is not blocks[0]


def test_without_room_the_idle_blocks_go_first():
    full = True

    def make(nbytes):
        if full and nbytes > 10:
            raise DeviceError("full")
        return Block(nbytes)

    pool = Pool(make, unit=1, kept=100)
    with pytest.raises(DeviceError, match="full"):
        pool.take(50)
    small = pool.take(10)
    pool.give(small)
    with pytest.raises(DeviceError, match="full"):
        pool.take(50)
    assert pool.idle == 0
    full = False
    assert pool.take(50).nbytes == 50
