"""Weights and banks in the order of the kernels: what is shared, padded, refused."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.agent.random_policy import random_policy, random_scenario
from opencl.rollout import PolicySkills, Shape
from opencl.rollout.operands import bf16, in_order
from opencl.rollout.packing import distinct, pack
from opencl.rollout.sizes import Sizes
from opencl.rollout.skills import step_bank, task_banks
from tests.opencl.rollout.scene import NETWORK, shape_of
from tests.snapshots import snapshot_of

S, H, L = NETWORK.scenarios, NETWORK.horizon, NETWORK.latent
TASK, STEP = 3 * S * L, S * H * L
W = random_scenario(NETWORK)


def sizes_of(group=False, **changed):
    network = NETWORK.model_copy(update=changed)
    return Sizes(shape_of(network), group, 2**16, "")


@pytest.fixture
def tensor_sizes(monkeypatch):
    monkeypatch.setattr("opencl.rollout.sizes.TENSOR_TILE", 64)
    return Sizes(shape_of(NETWORK), True, 48 * 1024, "", tensor=True)


def snapshot(dim, slots=6, width=None, seed=0):
    contexts = np.random.default_rng(seed).normal(0, 1, (50, width or dim)).astype(np.float32)
    return snapshot_of(contexts, slots, dim, seed)


def test_equal_objects_are_one():
    a, b = object(), object()
    assert distinct([a, b, a, a, b]) == ([0, 1], [0, 1, 0, 0, 1])
    assert distinct([]) == ([], [])


@pytest.mark.parametrize("group", [False, True])
def test_the_first_layer_follows_the_kernel_scenario_by_scenario(group):
    """W1's columns are [stack][3][S][L]; the kernels read [stack][S] blocks of 3*L inputs."""
    w = random_scenario(NETWORK.model_copy(update={"stack_size": 2}))
    sizes = sizes_of(group, stack_size=2)
    packed = pack(sizes, [w])["w1"][0]
    h1, padded, wide = 18, 20, 12
    if group:  # inputs in fours, L padded to one
        padded = sizes.encode_columns
        packed = packed.reshape(2, S, 3 * wide // 4, padded, 4).transpose(3, 0, 1, 2, 4)
        packed = packed.reshape(padded, 2, S, 3, wide).swapaxes(2, 3)
        assert not packed[..., L:].any()
        packed = packed[..., :L]
    else:
        packed = packed.reshape(2, S, padded, 3, L).transpose(2, 0, 3, 1, 4)
    np.testing.assert_array_equal(packed[:h1].reshape(h1, -1), w.W1)
    assert not packed[h1:].any()


def natural(operands):
    """B operands [n, k, 32, 4] of 16 outputs and 16 inputs each as weights [16*n, 16*k]."""
    n, k = operands.shape[:2]
    words = np.ascontiguousarray(operands).view(np.uint32)
    pairs = np.stack([words << 16, words & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)
    # lane 4*g + t; words: of 8 outputs, then of 8 inputs
    tiles = pairs.reshape(n, k, 8, 4, 2, 2, 2).transpose(0, 4, 2, 1, 5, 3, 6)
    return tiles.reshape(16 * n, 16 * k)


def bf16_of(x):
    return (bf16(x).astype(np.uint32) << 16).view(np.float32)


def test_tensor_cores_read_the_first_layer_scenario_by_scenario(tensor_sizes):
    """L is padded to 16, the outputs lie as activations do."""
    packed = pack(tensor_sizes, [W])["w1"][0]
    assert packed.size == tensor_sizes.defines()["W1_SIZE"]
    blocks = packed.reshape(S, 3, 2, 32, 4)
    rows = [np.concatenate([natural(b[None].swapaxes(0, 1)) for b in s], axis=1) for s in blocks]
    seen = np.stack(rows, axis=1).reshape(32, S, 3, 16).swapaxes(1, 2)
    wanted = np.zeros((32, 3, S, 16), np.float32)
    wanted[:18, ..., :L] = W.W1.reshape(18, 3, S, L)
    np.testing.assert_array_equal(seen, in_order(bf16_of(wanted), 0))


def test_tensor_cores_read_the_queries_in_two_parts(tensor_sizes):
    """Inputs rounded times rounded weights, inputs' rest times the same, inputs times the rest."""
    query = pack(tensor_sizes, [W])["query"][0]
    assert query.size == tensor_sizes.defines()["QUERY_SIZE"]
    blocks = query[tensor_sizes.query_at :].reshape(2, S, 2, 1, 1, 32, 4)
    plain = query[: tensor_sizes.query_at].reshape(2, S, L, 8)
    for q, n in ((0, 6), (1, 7)):
        for s in range(S):
            high, low = natural(blocks[q, s, 0]), natural(blocks[q, s, 1])
            wanted = np.zeros((16, 8), np.float32)
            wanted[:L, :n], wanted[:L, n] = plain[q, s, :, 1 : n + 1], plain[q, s, :, 0]
            np.testing.assert_array_equal(high, np.tile(bf16_of(wanted), 2))
            np.testing.assert_allclose(
                (high + low)[:, :8], wanted, atol=2**-16 * np.abs(W.Wq_balance).max()
            )
            assert not low[:, 8:].any()


def test_queries_begin_with_their_bias():
    w = W
    query = pack(sizes_of(), [w])["query"][0]
    n = S * L
    np.testing.assert_array_equal(query[:n, 1:7], w.Wq_balance)
    np.testing.assert_array_equal(query[n:, 1:], w.Wq_position)
    np.testing.assert_array_equal(query[:, 0], np.concatenate([w.bq_balance, w.bq_position]))


def test_ineligible_slots_are_not_searched_and_the_others_keep_their_numbers():
    bank = replace(snapshot(TASK), eligible=np.array([0, 1, 0, 0, 1, 0], np.uint8))
    w, other = W, random_scenario(NETWORK, 1)
    skills = [PolicySkills(bank), None, PolicySkills(bank), PolicySkills(bank)]
    packed, places = task_banks(sizes_of(True), [w, w, w, other], skills)
    assert places == [0, -1, 0, 1]  # what a guess knows depends on the weights
    entries, keys = packed["entries"][0], packed["bank_keys"][0]
    assert entries[:, 3].tolist() == [1, 4, -1, -1, -1, -1, -1, -1]
    np.testing.assert_array_equal(keys[:2, :TASK], bank.keys[[1, 4]])
    np.testing.assert_array_equal(entries[:2, 0], bank.norms[[1, 4]])
    assert not keys[2:].any() and not keys[:, TASK:].any()


def test_no_bank_packs_nothing():
    assert task_banks(sizes_of(), [W, W], [None, PolicySkills()]) == ({}, [-1, -1])


def test_a_step_bank_may_be_searched_by_features():
    bank = step_bank(sizes_of(), snapshot(STEP, width=42), 115)
    assert bank["keys"].shape == (8, 64) and bank["shift"].shape == (6, STEP)


@pytest.mark.parametrize(
    "bank, message",
    [
        (snapshot(TASK, slots=8), "8 slots in a rollout made for 7"),
        (snapshot(TASK + 1), f"dimensions; the network's task context has {TASK}"),
        (snapshot(TASK, width=42), "keys of 42"),
    ],
)
def test_a_task_bank_that_does_not_fit_is_refused(bank, message):
    with pytest.raises(ValueError, match=message):
        task_banks(sizes_of(), [W], [PolicySkills(bank)])


@pytest.mark.parametrize(
    "bank", [snapshot(STEP, slots=8), snapshot(STEP + 1), snapshot(STEP, width=116)]
)
def test_a_step_bank_that_does_not_fit_is_refused(bank):
    with pytest.raises(ValueError, match="a step bank"):
        step_bank(sizes_of(), bank, 115)


def test_policies_of_another_shape_are_refused():
    mlp = Shape((8, 8), 11, ("direction",))
    mlp.check([random_policy((8, 8), 11)])
    with pytest.raises(ValueError, match=r"hidden \(8, 9\), atoms 11 in a rollout of hidden"):
        mlp.check([random_policy((8, 9), 11)])
    with pytest.raises(ValueError, match="scenarios 3"):
        mlp.check([random_scenario(NETWORK)])
    other = NETWORK.model_copy(update={"top_k": 1})
    for wrong in (random_policy(NETWORK.hidden, 11), random_scenario(other)):
        with pytest.raises(ValueError, match="top_k 0; a rollout plays policies of one shape"):
            shape_of(NETWORK).check([wrong])


@pytest.mark.parametrize("size, slots", [((21, 12, 16), 21), ((8, 6, 8), 8)])
def test_a_gpu_has_room_for_the_original_sizes(monkeypatch, size, slots):
    """48 KiB of local memory, the whole tile of 32 episodes, all branches."""
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 32)
    branches = ("direction", "magnitude", "order", "urgency")
    shape = Shape((128, 128), 51, branches, "scenario", *size, slots=slots)
    sizes = Sizes(shape, True, 48 * 1024, "")
    assert sizes.tile == 32
    c = sizes.defines()
    rows = c["ROOM_ROWS"] + 13  # portfolio states, then as many action values
    assert 4 * (c["H_SIZE"] + rows * c["ROW"]) + (3 * 4 + 2 * 4) * c["TILE"] + 4 <= 48 * 1024
    # what takes turns fits: a search in h or in the room, interpretations in both
    assert c["SEARCH_BLOCK"] >= 1
    searched = (c["SLOTS"] + c["GUESS"] + 1) * c["ROW"]
    searched += c["SEARCH_BLOCK"] * 4 * (c["GROUP"] // 64 * 64 + 4)
    assert searched <= (c["H_SIZE"] if c["SEARCH_IN_H"] else c["ROOM_ROWS"] * c["ROW"])
    inside = min(c["CHUNK"], c["HIDDEN1"] // (3 * size[2]))
    assert 3 * size[2] * (c["CHUNK"] - inside) <= c["ROOM_ROWS"]


@pytest.mark.parametrize("tensor", [False, True])
def test_tiles_fill_a_gpu_and_leave_no_item_without_registers(monkeypatch, tensor):
    """At 132 multiprocessors of 64 Ki registers and 48 KiB of local memory a group."""
    monkeypatch.setattr("opencl.rollout.sizes.TILE", 32)
    shape = Shape((128, 128), 51, ("direction", "magnitude", "order", "urgency"))
    sizes = Sizes(shape, True, 48 * 1024, "", tensor)
    for n in (1, 2048, 4096, 16_384, 65_536, 2**20):
        tile, together = sizes.tiling(n, 132)
        assert tile == 16 or -(-n // tile) >= 132
        made = Sizes(shape, True, 48 * 1024, "", tensor, tile, together)
        assert made.tile == tile <= made.items
        if tensor:
            assert made.items * made.registers * together == 2**16
    assert sizes.tiling(2**20, 132)[0] == sizes.tile == (128 if tensor else 32)


@pytest.mark.parametrize("group, tensor", [(False, False), (True, False), (True, True)])
def test_the_smallest_network_has_sizes(group, tensor):
    c = Sizes(Shape((1, 1), 2, ("direction",)), group, 48 * 1024, "", tensor).defines()
    assert c["HIDDEN2"] == (32 if tensor else 4) and c["HEAD"] >= 2
