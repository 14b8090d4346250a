"""ONLINE: directions follow the window, a bar later than they act, on copies of the banks."""

import numpy as np
import pytest
import torch

from backtest.agent.bank import MISS
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.d2skill import D2SkillActor
from backtest.agent.dueling import expected, greedy, lift
from backtest.agent.skill_gradients import residuals
from backtest.agent.skills import online
from backtest.agent.skills.online import play_online
from backtest.agent.weights import assemble
from backtest.agent_sections import SkillBank
from backtest.config import Learner, Network
from backtest.market.layout import End
from backtest.market.portfolio import portfolio_state
from backtest.market.walk import walk_actions
from tests.backtest.agent.bank.plain import put
from tests.backtest.agent.skilled import network
from tests.scenes import bars, params, tape

SIZES = Network(kind="scenario", scenarios=2, horizon=3, latent=4, hidden=(16, 16), atoms=11)
START, BARS = 30, 40
SETTINGS = Learner(gamma=0.5)
ALPHA = {"task": 1.0, "step": 1.0}
NET = network(sizes=SIZES).requires_grad_(False)
RNG = np.random.default_rng(2)
CLOSE = 100 + RNG.normal(0, 1, BARS).cumsum()
STATES = RNG.standard_normal((BARS, 115)).astype(np.float32)


def section(**changes):
    """Contexts within 60 degrees of a key find its skill; a residual turns it by half."""
    given = {
        "slots": 4,
        "similarity_threshold": 0.5,
        "centering": "none",
        "aggregate": 1,
        "alpha_unit": "raw",
        "max_correction": 5.0,
        "beta_direction": 0.5,
    }
    return SkillBank(**(given | changes))


def banks(rules, names=("task", "step")):
    """Skills at the contexts of bars 0, 10 and 20 of a flat account."""
    made, flat = D2SkillActor(NET, rules).banks, np.zeros((3, 13), np.float32)
    rows = torch.from_numpy(assemble(STATES[[0, 10, 20]], flat))
    contexts = NET.contexts(torch.cat([rows, NET.context(rows)], dim=1))
    chance = np.random.default_rng(7)
    for bank, hidden in zip(made.values(), contexts, strict=True):
        for slot, h in enumerate(hidden.numpy()):
            way = chance.standard_normal(bank.dim)
            put(bank, slot, h, way / np.linalg.norm(way), scale=2.0)
    return {name: made[name] for name in names}


def market(close=CLOSE, **changes):
    return tape(bars(close), params(**changes), start=START)


def play(given, rules=None, on=None, states=STATES, **options):
    rules = rules or section()
    return play_online(NET, given, ALPHA, on or market(), states, SETTINGS, rules, **options)


@pytest.fixture
def seen(monkeypatch):
    """The hash of both banks after every step, and every turn: (t, slot, g, direction after)."""
    hashes, turns = [], []
    step, turn = online._Episode.step, D2SkillActor._turn

    def recorded(episode, t):
        goes_on = step(episode, t)
        hashes.append([bank.content_hash() for bank in episode.actor.banks.values()])
        return goes_on

    def turned(actor, decided, after):
        turn(actor, decided, after)
        for name, slots in decided.slots.items():
            if slots[0] >= 0:
                way = actor.banks[name].state.directions[slots[0]].copy()
                turns.append((len(hashes), name, int(slots[0]), after[name][0], way))

    monkeypatch.setattr(online._Episode, "step", recorded)
    monkeypatch.setattr(D2SkillActor, "_turn", turned)
    return hashes, turns


def test_only_directions_follow_and_only_of_copies():
    given = banks(section())
    before = {name: bank.content_hash() for name, bank in given.items()}
    out = play(given)
    assert {name: bank.content_hash() for name, bank in given.items()} == before
    for column, (name, bank) in enumerate(out.banks.items()):
        found = out.slots[:, column]
        hits = np.bincount(found[found >= 0], minlength=4)
        old, new = given[name].state, bank.state
        turned = (new.directions != old.directions).any(axis=1)
        assert hits.any() and np.array_equal(turned, hits > 0)
        assert np.allclose(np.linalg.norm(new.directions[:3], axis=1), 1, atol=1e-6)
        assert np.allclose(new.corrections, new.directions * new.scale[:, None])
        assert new.uses.tolist() == hits.tolist()
        assert np.array_equal(new.influence != 0, hits > 0)
        assert bank.counters["direction_updates"] == hits.sum()
        for array in ("keys", "scale", "state", "utility", "age", "observations", "norm_ema"):
            assert np.array_equal(getattr(new, array), getattr(old, array)), array


def test_what_is_kept_of_a_run_is_what_the_market_did():
    out = play(banks(section()))
    walk = walk_actions(market(), np.array([START]), out.action[:, None].astype(int))
    assert out.trace.tobytes() == walk.result[:, 0].tobytes()
    assert out.trace["end"][-1] == End.TRUNCATED and len(out.action) == BARS - 1
    assert (out.action[:, 2:] == [0, 2]).all()  # branches that are not learned


@pytest.mark.parametrize("residual", ["advantage", "td"])
def test_a_bar_changes_no_earlier_decision_and_no_earlier_byte(seen, residual):
    """Bars behind `kept` and all that is known of them are others."""
    hashes, _ = seen
    rules = section(residual=residual)
    base = play(banks(rules), rules)
    before = hashes.copy()
    for kept in (1, 12, 30):
        hashes.clear()
        later = np.arange(BARS) > kept
        other = RNG.standard_normal((BARS, 115)).astype(np.float32)
        close, states = CLOSE.copy(), np.where(later[:, None], other, STATES)
        close[later] += RNG.normal(0, 5, later.sum())
        changed = play(banks(rules), rules, market(close), states)
        # the decision at bar `kept` sees nothing later; the update that bar `kept` closes neither
        assert np.array_equal(changed.action[: kept + 1], base.action[: kept + 1])
        assert np.array_equal(changed.slots[: kept + 1], base.slots[: kept + 1])
        assert changed.trace[:kept].tobytes() == base.trace[:kept].tobytes()
        assert hashes[:kept] == before[:kept] and hashes[-1] != before[-1]


@pytest.mark.parametrize("residual", ["advantage", "td"])
def test_the_residual_is_of_the_one_step_target(seen, residual):
    """Of the first decision that finds a skill: its direction turns before the next decision."""
    _, turns = seen
    rules, names = section(residual=residual), ("step",)
    given = banks(rules, names)
    out = play(given, rules)
    t, name, slot, g, after = turns[0]
    assert name == "step" and out.slots[t, 1] == slot and (out.slots[:t, 1] == MISS).all()
    states = states_of(out)[t : t + 2]
    head = tuple(part.detach() for part in NET.head((0, 1)))
    snapshot = given["step"].snapshot(1.0)
    moved = torch.from_numpy(snapshot.shift[[slot]])
    reward = float(out.trace["reward"][t])
    # the Actor selects with its skills, the critic evaluates without any
    task, step = NET.contexts(states[1])
    found = retrieve_rows(snapshot, step.numpy())
    selected = step + torch.from_numpy(snapshot.shift[found]) if found[0] >= 0 else step
    chosen = best(NET.logits_from(task, selected, states[1], head), states[1])
    logits = NET.logits(states[1], head)[0]
    mass = logits[[chosen[0], 4 + chosen[1]]].softmax(-1).mean(0)
    goal = reward + 0.5 * float(mass @ NET.support)

    def loss(logits):
        if residual == "td":
            places = (reward + 0.5 * NET.support).clamp(NET.support[0], NET.support[-1])
            gaps = (places[:, None] - NET.support).abs() / (NET.support[1] - NET.support[0])
            target = mass @ (1 - gaps).clamp(min=0)
            log_p = logits[0, [int(out.action[t, 0]), 4 + int(out.action[t, 1])]].log_softmax(-1)
            return -(log_p @ target).mean()
        q = expected(logits[0, :4], NET.support)
        return -(goal - q.mean()).detach() * (q[int(out.action[t, 0])] - q.mean())

    want = residuals(NET, states[0], head, loss, {"step": moved})["step"][0]
    np.testing.assert_allclose(g, want, rtol=1e-3, atol=1e-7)
    mixed = 0.5 * given["step"].state.directions[slot] + 0.5 * g / np.linalg.norm(g)
    np.testing.assert_allclose(after, mixed / np.linalg.norm(mixed), rtol=1e-4, atol=1e-6)


def best(logits, state):
    q = lift(expected(logits, NET.support), NET.alpha(state))
    return greedy(q, (0, 1))[0].tolist()


def states_of(out):
    """The input before every decision of a run, from the market's own walk."""
    walk, at = walk_actions(market(), np.array([START]), out.action[:, None].astype(int)), market()
    found = []
    for t in range(BARS - 1):
        bar = at.at(np.array([START + t]))
        held = portfolio_state(at.params, walk.state[t], bar, np.array([t], np.int32))
        row = torch.from_numpy(assemble(STATES[[t]], held))
        found.append(torch.cat([row, NET.context(row)], dim=1))
    return found


def chosen_by(actor, out):
    """Decisions of an actor in the states of a run, [n, 2]."""
    return [greedy(actor.q_values(row, (0, 1)), (0, 1))[0].tolist() for row in states_of(out)]


def test_directions_can_be_left_alone():
    given = banks(section())
    out = play(given, turn=False)
    actor = D2SkillActor(NET, section())
    for name, bank in given.items():
        actor.banks[name].load_state_dict(bank.state_dict())
    actor.enable(task=True, step=True)
    actor.set_mode("inference")
    assert out.action[:, :2].tolist() == chosen_by(actor, out)
    for name, bank in out.banks.items():
        assert np.array_equal(bank.state.directions, given[name].state.directions)
        assert bank.state.uses.any() and bank.state.influence.any()
    assert not np.array_equal(play(given).action, out.action)


def test_without_banks_it_is_the_policy():
    out = play({})
    assert out.banks == {} and (out.slots == MISS).all()
    assert out.action[:, :2].tolist() == chosen_by(NET, out)


def test_a_ruin_ends_it():
    on = market(commission=5.0, initial_capital=60.0, ruin_level=20.0)
    out = play(banks(section()), on=on)
    (last,) = np.flatnonzero(out.trace["end"] == End.TERMINATED)
    assert last < BARS - 2 and (out.trace["end"][last + 1 :] == End.DEAD).all()
    assert not out.action[last + 1 :].any() and (out.slots[last + 1 :] == MISS).all()
    assert not out.trace["equity"][last + 1 :].any()


def test_a_stack_holds_what_came_before(monkeypatch):
    """Newest first, zeros before the episode began."""
    sizes = Network(**(SIZES.model_dump() | {"stack_size": 3}))
    deep, states, given = network(sizes=sizes).requires_grad_(False), [], online._Episode._state

    def recorded(episode, t):
        states.append(given(episode, t))
        return states[-1]

    monkeypatch.setattr(online._Episode, "_state", recorded)
    out = play_online(deep, {}, {}, market(), STATES, SETTINGS, section())
    assert len(states) == BARS
    for t in range(BARS - 1):
        assert states[t].shape == (1, 3, 128 + 2 * 3 * 4 + 2 * 3 + 2)
        for back in range(3):
            want = states[t - back][0, 0] if t >= back else torch.zeros(states[t].shape[2])
            assert torch.equal(states[t][0, back], want)
        q = deep.q_values(states[t], (0, 1))
        assert out.action[t, :2].tolist() == greedy(q, (0, 1))[0].tolist()
