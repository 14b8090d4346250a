"""EVALUATE: the same episodes with and without skills; uses, influence, utility, harm."""

import numpy as np
import pytest
import torch

from backtest.agent.bank import ABSTAIN, MISS, SlotState
from backtest.agent.dueling import expected
from backtest.agent.weights import assemble
from backtest.market.layout import End
from opencl.formation.actor import Actor, pnl
from opencl.formation.collection import collect
from opencl.formation.evaluation import evaluate, judge_alone, judge_together, live_slots
from tests.backtest.agent.bank.plain import plain, put
from tests.opencl.bank_scenes import assert_same_banks, copy_of
from tests.opencl.formation.scene import START, actor_of, columns, ground_of
from tests.skills import SLOTS

N, EPISODES, STEPS, ROUNDS = 260, 8, 16, 2
CLOSE, STATES = columns(N)


@pytest.fixture(scope="module")
def made():
    """An actor whose banks are strong enough to change decisions, its bars, and the banks."""
    actor = actor_of("skills.bank.alpha=3.0")
    ground = ground_of(actor, CLOSE, STATES)
    banks, _ = collect(actor, ground, actor.new_banks())
    return actor, ground, banks


@pytest.fixture
def played(monkeypatch):
    """Every launch: first bars, sets of skills, what came out."""
    launches, play = [], Actor.play

    def recorded(actor, ground, start, steps, skills, **options):
        out = play(actor, ground, start, steps, skills, **options)
        launches.append((start, skills, out))
        return out

    monkeypatch.setattr(Actor, "play", recorded)
    return launches


def copies(banks):
    return {name: copy_of(bank) for name, bank in banks.items()}


def part(out, index):
    """The columns of one set of skills."""
    return slice(index * EPISODES, (index + 1) * EPISODES)


def test_the_same_bars_without_skills_with_each_bank_and_with_each_skill(made, played):
    actor, ground, given = made
    banks, live = copies(given), {name: live_slots(bank) for name, bank in given.items()}
    done = evaluate(actor, ground, banks)
    assert len(played) == ROUNDS
    for start, sets, out in played[:1]:
        assert sets[0] is None and len(sets) == 3 + sum(map(len, live.values()))
        assert sets[1].step is None and sets[2].task is None
        alone = [("task", slot) for slot in live["task"]]
        alone += [("step", slot) for slot in live["step"]]
        for one, (name, slot) in zip(sets[3:], alone, strict=True):
            assert np.flatnonzero(getattr(one, name).eligible).tolist() == [slot]
        # common random numbers: episode e begins on the same bar whatever the skills
        assert np.array_equal(out.start, np.tile(start, len(sets)))
        assert len(start) == EPISODES and start.min() >= START
        assert start.max() + STEPS <= START + N - 1
        # greedy play draws nothing: until a skill is found, an episode is that of `none`
        index = 2
        for e in range(EPISODES):
            hits = np.flatnonzero(out.slots[:, part(out, index), 1][:, e] >= 0)
            until = hits[0] if len(hits) else STEPS
            mine, base = out.action[:, part(out, index)][:until, e], out.action[:until, e]
            assert np.array_equal(mine, base)
    assert not np.array_equal(played[0][0], played[1][0])
    assert done.steps == sum(int((out.end != End.DEAD).sum()) for _, _, out in played)
    # again: the same bits
    again = copies(given)
    evaluate(actor, ground, again)
    assert_same_banks(banks.values(), again.values())


def test_each_skill_is_judged_by_the_episodes_it_had_alone(played):
    actor = actor_of("skills.bank.alpha=3.0", "skills.evaluate_rounds=1")
    ground = ground_of(actor, CLOSE, STATES)
    banks, _ = collect(actor, ground, actor.new_banks())
    live = {name: live_slots(bank) for name, bank in banks.items()}
    evaluate(actor, ground, banks)
    _, sets, out = played[-1]
    earned = pnl(out, 1000.0).sum(axis=0).reshape(len(sets), EPISODES)
    place = 3
    for name, slots in live.items():
        want = np.zeros(SLOTS)
        for slot in slots:
            gain = (earned[place] - earned[0]) / earned[0].std(ddof=1)
            want[slot] = 0.1 * np.clip(gain, -1, 1).mean()
            place += 1
        assert len(slots) > 1 and np.unique(want).size > 1
        np.testing.assert_allclose(banks[name].state.utility, want, rtol=1e-4, atol=1e-7)
    assert place == len(sets)


def test_uses_misses_and_abstentions_are_counted(made, played):
    actor, ground, given = made
    banks = copies(given)
    evaluate(actor, ground, banks)
    for index, name in enumerate(("task", "step")):
        before, after = given[name].counters, banks[name].counters
        found = np.concatenate(
            [out.slots[:, part(out, 1 + index), index].ravel() for _, _, out in played]
        )
        alive = np.concatenate(
            [out.end[:, part(out, 1 + index)].ravel() != End.DEAD for _, _, out in played]
        )
        found = found[alive]
        uses = np.bincount(found[found >= 0], minlength=given[name].slots)
        assert uses.any() and banks[name].state.uses.tolist() == uses.tolist()
        assert np.array_equal(banks[name].state.retrieved != 0, uses > 0)
        assert after["hits"] - before["hits"] == uses.sum()
        assert after["misses"] - before["misses"] == (found == MISS).sum()
        assert after["abstentions"] - before["abstentions"] == (found == ABSTAIN).sum()
        assert not banks[name].state.influence.any()  # cleared after each episode
        for array in ("keys", "directions", "corrections", "scale", "age", "observations"):
            assert np.array_equal(
                getattr(banks[name].state, array), getattr(given[name].state, array)
            )


@pytest.mark.parametrize("rule", ["trapezoid", "endpoint"])
def test_influence_by_hand(played, rule):
    """g of both ends times the correction, the rows of one slot and all its episodes."""
    actor = actor_of(
        "skills.bank.alpha=3.0", "skills.evaluate_rounds=1", f"skills.bank.influence_rule={rule}"
    )
    ground = ground_of(actor, CLOSE, STATES)
    banks, _ = collect(actor, ground, actor.new_banks())
    snapshot = banks["step"].snapshot(explore=True)
    played.clear()
    done = evaluate(actor, ground, copies(banks))
    _, _, out = played[0]
    network, gamma = actor.network, actor.config.learner.gamma
    mine = part(out, 2)
    slots, reward, start = out.slots[:, mine, 1], out.reward[:, mine], out.start[mine]
    head = tuple(p.detach() for p in network.head((0, 1)))
    total, rows = 0.0, 0
    (slot, *_) = np.unique(slots[slots >= 0])
    for e in range(EPISODES):
        for t in range(STEPS - 4):  # behind them five rewards were not seen
            if slots[t, e] != slot:
                continue
            bar = STATES[[start[e] + t - START]]
            row = torch.from_numpy(assemble(bar, out.portfolio[t, mine][[e]]))
            row = torch.cat([row, network.context(row)], dim=1)
            value = sum(gamma**i * reward[t + i, e] for i in range(5))
            task, step = network.contexts(row)
            d, g = torch.from_numpy(snapshot.shift[slot]), []
            for h in (step.detach(), step.detach() + d):
                h.requires_grad_()
                q = expected(network.logits_from(task, h, row, head)[0, :4], network.support)
                gap = q[int(out.action[t, mine][e, 0])] - q.mean()
                ((value - q.mean().detach()) * gap).backward()
                g.append(h.grad[0])
            mean = (g[0] + g[1]) / 2 if rule == "trapezoid" else g[1]
            total, rows = total + float(mean @ d), rows + 1
    assert rows > 3 and done.influence["step"][slot] == pytest.approx(total, rel=1e-3)
    hits = (out.slots[: STEPS - 4, mine, 1] >= 0).sum()
    hits += (out.slots[: STEPS - 4, part(out, 1), 0] >= 0).sum()
    assert done.gradient_rows == hits * (2 if rule == "trapezoid" else 1)


class TestUtility:
    WITHOUT = np.array([3.0, -1.0, 2.0, 0.0, 1.0, -2.0, 4.0, 1.0])

    def bank(self, **rules):
        bank = plain(4, 3, **rules)
        for slot in range(3):
            put(bank, slot, np.eye(3)[slot], np.eye(3)[slot])
        return bank

    def test_each_skill_by_its_own_episodes(self):
        """U += 1/2*(Delta - U); a skill whose interval lies below zero becomes INACTIVE."""
        bank, s = self.bank(), self.WITHOUT.std(ddof=1)
        noise = np.array([1.0, -1.0] * 4)
        own = np.stack([self.WITHOUT - 0.5 * s, self.WITHOUT + s * (0.2 + 0.5 * noise)])
        judge_alone(bank, [0, 2], own, self.WITHOUT)
        assert bank.state.utility[:3].tolist() == pytest.approx([-0.25, 0.0, 0.1])
        states = [SlotState.INACTIVE, SlotState.ACTIVE, SlotState.ACTIVE, SlotState.FREE]
        assert bank.state.state.tolist() == states
        assert live_slots(bank) == [1, 2]

    def test_too_few_episodes_say_nothing(self):
        bank = self.bank()
        judge_alone(bank, [0], self.WITHOUT[None, :7] - 9, self.WITHOUT[:7])
        judge_alone(bank, [], self.WITHOUT[None, :0], self.WITHOUT)
        assert not bank.state.utility.any() and live_slots(bank) == [0, 1, 2]
        assert bank.counters["utility_skips"] == 6

    def test_participation_shares_delta_by_size_of_influence(self):
        bank = self.bank(utility_rule="participation")
        influence = np.array([[3.0, -1.0, 0, 0], [0, 0, 0, 0], [0, 2.0, 0, 0]])
        judge_together(bank, influence, np.array([0.8, 0.5, -1.0], np.float32))
        # episode 1: 1/2*3/4*0.8 and 1/2*1/4*0.8; episode 3: U1 += 1/2*(-1 - U1)
        assert bank.state.utility[:3].tolist() == pytest.approx([0.3, 0.1 - 0.55, 0.0])
        assert bank.counters["utility_updates"] == 2 and bank.counters["utility_skips"] == 1
        assert not bank.state.influence.any()

    def test_original_pays_only_those_that_pulled_the_right_way(self):
        bank = self.bank(utility_rule="original")
        judge_together(bank, np.array([[3.0, -1.0, 1.0, 0]]), np.array([-0.8], np.float32))
        # U = 1/2*U + 1/2*Delta*share over positive influences: 3/4 and 1/4
        assert bank.state.utility[:3].tolist() == pytest.approx([-0.3, 0.0, -0.1])

    def test_without_a_delta_every_episode_is_skipped(self):
        bank = self.bank(utility_rule="participation")
        judge_together(bank, np.ones((5, 4)), None)
        assert bank.counters["utility_skips"] == 5 and not bank.state.utility.any()


@pytest.mark.parametrize("rule", ["participation", "original"])
def test_the_rules_of_the_whole_bank(made, played, rule):
    """Utilities of a round are those of its episodes in order, by Delta and influence."""
    actor = actor_of(
        "skills.bank.alpha=3.0", "skills.evaluate_rounds=1", f"skills.bank.utility_rule={rule}"
    )
    _, ground, _ = made
    banks, _ = collect(actor, ground, actor.new_banks())
    played.clear()
    done = evaluate(actor, ground, banks)
    _, sets, out = played[0]
    assert len(sets) == 3  # no skill is played alone
    earned = pnl(out, 1000.0).sum(axis=0)
    gain = (earned[part(out, 2)] - earned[part(out, 0)]) / earned[part(out, 0)].std(ddof=1)
    assert done.delta["step"] == pytest.approx([np.clip(gain, -1, 1).mean()])
    moved = banks["step"].state.utility != 0
    assert moved.any() and not moved[done.influence["step"] == 0].any()


def test_empty_banks_are_inert(made, played):
    actor, ground, _ = made
    banks = actor.new_banks()
    for bank in banks.values():
        bank.close_collection()
    done = evaluate(actor, ground, banks)
    _, sets, out = played[0]
    assert len(sets) == 3 and done.gradient_rows == 0
    base = out.equity[:, part(out, 0)]
    assert all(np.array_equal(out.equity[:, part(out, i)], base) for i in (1, 2))
    for name, bank in banks.items():
        assert done.delta[name] == [0.0] * ROUNDS and not done.influence[name].any()
        assert bank.counters["misses"] == ROUNDS * EPISODES * STEPS
