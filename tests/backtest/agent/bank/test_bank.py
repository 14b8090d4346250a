"""What holds for every stream: rows equal the loop, nothing live is overwritten, all is finite."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtest.agent.bank import Bank, Decision, SlotState
from tests.backtest.agent.bank.plain import plain, stream

SETTINGS = st.fixed_dictionaries(
    {
        "representation": st.sampled_from(["direction_magnitude", "full"]),
        "aggregate": st.sampled_from([1, 3]),
        "aggregate_cells": st.sampled_from([2, 8]),
        "candidate_pool": st.sampled_from([1, 3]),
        "candidate_ttl": st.sampled_from([2, 50]),
        "min_confirmations": st.sampled_from([1, 2, 3]),
        "protection_age": st.sampled_from([0, 3]),
        "inactivity_age": st.sampled_from([1, 5, 200]),
        "similarity_threshold": st.sampled_from([-0.5, 0.3, 0.7]),
        "direction_threshold": st.sampled_from([-0.9, 0.5]),
        "max_correction": st.sampled_from([0.05, 1.0]),
    }
)


def wild(seed, rows, dim):
    """A stream with outliers, zeros, tiny, huge and non-finite rows."""
    rng = np.random.default_rng(seed)
    h, g = stream(rng, rows, dim, centres=4, noise=0.6)
    kind = rng.integers(0, 20, rows)
    g[kind == 0] = 0
    g[kind == 1] *= 1e-7
    g[kind == 2] *= 1e18
    h[kind == 3] = 0
    h[kind == 4, 0] = np.nan
    g[kind == 5, -1] = np.inf
    g[kind == 6] *= -1
    return h, g


@settings(max_examples=25, deadline=None)
@given(parameters=SETTINGS, seed=st.integers(0, 2**31), dim=st.sampled_from([1, 4, 65]))
def test_any_stream(parameters, seed, dim):
    h, g = wild(seed, 60, dim)
    one, rows = plain(dim=dim, **parameters), plain(dim=dim, **parameters)
    loop = []
    for x, y in zip(h, g, strict=True):
        before = one.state_dict()
        decision, slot = one.update(x, y)
        loop.append((int(decision), slot))
        check_step(before, one, decision, slot)
    decisions, slots = rows.update_rows(h, g)
    assert decisions.dtype == slots.dtype == np.int32
    assert loop == list(zip(decisions.tolist(), slots.tolist(), strict=True))
    assert one.content_hash() == rows.content_hash()
    check_counters(one, decisions)


def check_step(before, bank, decision, slot):
    after = bank.state
    for name, array in after.arrays().items():
        assert np.isfinite(array).all(), name
    used = after.used != 0
    assert np.array_equal(used, after.state != SlotState.FREE)
    assert not (after.state == SlotState.CANDIDATE).any()
    lengths = np.linalg.norm(after.directions[used].astype(np.float64), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5)
    assert (after.scale >= 0).all() and (after.scale <= np.float32(bank.rules.max_correction)).all()
    assert (slot >= 0) == (decision in (Decision.MATCH, Decision.FREE, Decision.EVICT))
    changed = (after.keys != before["keys"]).any(1)
    # at most the named slot moves, and only an inactive, unprotected one is replaced
    assert not changed[np.arange(bank.slots) != slot].any()
    if decision == Decision.FREE:
        assert before["used"][slot] == 0 and before["used"][:slot].all()
    if decision == Decision.EVICT:
        assert before["used"].all()
        was_active = before["state"][slot] == SlotState.ACTIVE
        assert before["state"][slot] == SlotState.INACTIVE or (
            was_active and before["age"][slot] + 1 >= bank.rules.inactivity_age
        )
        assert before["protection"][slot] <= 1
    free = after.pool_used == 0
    for name in ("keys", "directions", "corrections", "scale", "streak", "clock"):
        assert not np.any(getattr(after, f"pool_{name}")[free])


def check_counters(bank, decisions):
    c = bank.counters
    emitted = c["ticks"]
    assert c["rows"] == len(decisions) == emitted + c["swallowed"] + c["non_finite"]
    assert emitted == c["small"] + c["matches"] + c["seeds"] + c["resets"] + c["confirmations"]
    assert c["matches"] == (decisions == Decision.MATCH).sum()
    assert c["promotions_free"] == (decisions == Decision.FREE).sum()
    assert c["promotions_evict"] == (decisions == Decision.EVICT).sum()
    assert (decisions == Decision.NONE).sum() == (
        c["swallowed"] + c["non_finite"] + c["small"] + c["drops"]
    )


def test_batches_may_be_cut_anywhere():
    h, g = wild(11, 300, 20)
    whole, parts = plain(dim=20), plain(dim=20)
    whole.update_rows(h, g)
    for start, stop in ((0, 1), (1, 100), (100, 100), (100, 299), (299, 300)):
        parts.update_rows(h[start:stop], g[start:stop])
    assert whole.content_hash() == parts.content_hash()


def test_a_later_observation_cannot_change_an_earlier_decision():
    h, g = wild(12, 200, 20)
    first = plain(dim=20)
    early = first.update_rows(h[:120], g[:120])
    frozen = first.content_hash()
    other = plain(dim=20)
    h[120:] += 1
    g[120:] *= -3
    late = other.update_rows(h, g)
    assert np.array_equal(early[0], late[0][:120]) and np.array_equal(early[1], late[1][:120])
    again = plain(dim=20)
    again.update_rows(h[:120], g[:120])
    assert again.content_hash() == frozen


def test_both_representations_keep_the_same_slots_directions_and_scales():
    h, g = wild(13, 200, 20)
    banks = [plain(dim=20, representation=r) for r in ("full", "direction_magnitude")]
    for bank in banks:
        bank.update_rows(h, g)
    a, b = (bank.state_dict() for bank in banks)
    for name in a:
        if "corrections" not in name:
            assert np.array_equal(a[name], b[name]), name
    assert not np.array_equal(a["corrections"], b["corrections"])


def test_defaults_are_those_of_the_specification():
    bank = Bank(8, 16)
    p = bank.parameters
    assert (p["similarity_threshold"], p["direction_threshold"], p["min_confirmations"]) == (
        "auto",
        0.5,
        3,
    )
    assert (p["aggregate"], p["centering"], p["alpha_unit"]) == (25, "mean", "relative")
    assert bank.state.cell_keys.shape == (64, 16) and bank.state.pool_keys.shape == (4, 16)
    assert Bank(8, 16, **p).section == bank.section


@pytest.mark.parametrize("count", [1, 7])
def test_state_holds_the_arrays_of_the_specification(count):
    arrays = plain(slots=count).state_dict()
    for name in ("scale", "utility", "observations", "uses", "mass", "used", "state"):
        assert arrays[name].shape == (count,)
    for name in ("age", "protection", "influence", "retrieved"):
        assert arrays[name].shape == (count,)
    for name in ("keys", "corrections", "directions"):
        assert arrays[name].shape == (count, 4)
