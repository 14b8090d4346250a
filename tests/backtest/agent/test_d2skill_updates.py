"""What the Actor learns after backward: skills, influence, utility, directions."""

import numpy as np
import pytest
import torch

from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.bank.utility import influence_of
from backtest.agent.skill_gradients import residuals
from tests.backtest.agent.skilled import BANK, actor, hashes, mean_loss, network, ready, states

STATE = states(network())


def test_collect_learns_minus_b_times_the_gradient_in_row_order():
    a = actor()
    a.enable(task=True, step=True)
    a.set_mode("collect")
    twins = {name: bank for name, bank in actor().banks.items()}
    for seed in range(3):
        state = states(a.network, rows=5, seed=seed)
        g = residuals(a.network, state, a.head(), mean_loss)
        mean_loss(a.logits(state, a.head())).backward()
        decisions = a.update()
        for (name, twin), h in zip(twins.items(), a.network.contexts(state), strict=True):
            want = twin.update_rows(h.detach().numpy(), g[name])
            assert np.array_equal(decisions[name], want)
    for name, twin in twins.items():
        # the two gradients come from graphs of their own: equal to rounding
        for key, array in twin.state_dict().items():
            assert np.allclose(a.banks[name].state_dict()[key], array, rtol=1e-3, atol=1e-6), key
        assert a.banks[name].state.used.any()


def test_collect_without_a_gradient_on_the_weights():
    a = actor()
    a.network.requires_grad_(False)
    a.enable(task=True, step=False)
    a.set_mode("collect")
    mean_loss(a.logits(STATE, a.head())).backward()
    assert a.update().keys() == {"task"}
    assert a.banks["task"].counters["rows"] == len(STATE)
    assert a.banks["step"].counters["rows"] == 0


def test_learning_needs_act_then_backward_then_update():
    a = actor()
    a.enable(task=True, step=True)
    a.set_mode("collect")
    with pytest.raises(RuntimeError, match="update without backward"):
        a.update()
    loss = mean_loss(a.logits(STATE, a.head()))
    with pytest.raises(RuntimeError, match="update without backward"):
        a.update()
    loss.backward()
    a.update()
    with pytest.raises(RuntimeError, match="update without backward"):  # once only
        a.update()
    with torch.no_grad():
        a.logits(STATE, a.head())
    with pytest.raises(RuntimeError, match="update without backward"):
        a.update()


def test_a_loss_that_is_not_finite_teaches_nothing():
    a = actor()
    a.enable(task=True, step=True)
    a.set_mode("collect")
    (mean_loss(a.logits(STATE, a.head())) * float("nan")).backward()
    a.update()
    for bank in a.banks.values():
        assert bank.counters["non_finite"] == len(STATE) and not bank.state.used.any()


def test_features_can_be_the_key_of_the_step_bank():
    a = actor(BANK.model_copy(update={"key": "features"}))
    assert a.banks["step"].key_dim == 42 and a.banks["task"].key_dim == a.banks["task"].dim
    a.enable(task=False, step=True)
    a.set_mode("collect")
    mean_loss(a.logits(STATE, a.head())).backward()
    a.update()
    bank = a.banks["step"]
    assert np.array_equal(bank.state.keys[0], STATE[0, :42].numpy())
    sizes = a.network.contexts(STATE)[1].detach().norm(dim=1)
    assert np.isclose(bank.state.h_mean, sizes.mean(), rtol=1e-5)  # of the hidden state
    bank.close_collection()
    a.set_mode("inference")
    assert not torch.equal(a.logits(STATE, a.head()), a.network.logits(STATE, a.head()))


@pytest.mark.parametrize("rule", ["trapezoid", "endpoint"])
def test_influence_of_each_application(rule):
    a = ready("evaluate", section=BANK.model_copy(update={"influence_rule": rule}))
    head = a.head()
    mean_loss(a.logits(STATE, head)).backward()
    decided = a._decided
    a.update(mean_loss)
    for name in ("task", "step"):
        after = residuals(a.network, STATE, head, mean_loss, decided.added)[name]
        others = {n: d for n, d in decided.added.items() if n != name}
        before = residuals(a.network, STATE, head, mean_loss, others)[name]
        each = influence_of(
            before, after, decided.added[name].numpy(), trapezoid=rule == "trapezoid"
        )
        slots = decided.slots[name]
        want = [each[slots == slot].sum() for slot in range(4)]
        assert np.allclose(a.banks[name].state.influence, want, rtol=1e-3, atol=1e-7)
        assert a.banks[name].state.influence.any()


def test_the_trapezoid_needs_the_loss():
    a = ready("evaluate")
    mean_loss(a.logits(STATE, a.head())).backward()
    with pytest.raises(ValueError, match="trapezoid: pass the loss"):
        a.update()


@pytest.mark.parametrize("mode", ["evaluate", "online"])
def test_uses_count_and_utility_follows(mode):
    a = ready(mode, section=BANK.model_copy(update={"utility_rule": "participation"}))
    slots = retrieve_rows(a.banks["task"].snapshot(), a.network.contexts(STATE)[0].detach().numpy())
    a.logits(STATE, a.head(), look=True)
    assert not a.banks["task"].state.uses.any()
    mean_loss(a.logits(STATE, a.head())).backward()
    bank = a.banks["task"]
    assert bank.state.uses.tolist() == np.bincount(slots[slots >= 0], minlength=4).tolist()
    assert np.array_equal(bank.state.retrieved != 0, bank.state.uses > 0)
    a.update(mean_loss)
    assert bank.state.influence.any()
    a.task_utility(0.8)
    assert bank.state.utility.any() and not bank.state.influence.any()
    assert not a.banks["step"].state.utility.any() and a.banks["step"].state.influence.any()
    a.reset_episode_influence()
    assert not a.banks["step"].state.influence.any()
    a.step_utility(0.8)
    assert not a.banks["step"].state.utility.any()


def test_an_evaluation_reads_its_snapshot_until_the_episode_ends():
    a = ready("evaluate")
    head = a.head()
    before = a.logits(STATE, head)
    for bank in a.banks.values():
        bank.state.utility[:] = -1  # nothing is eligible any more
    assert torch.equal(a.logits(STATE, head), before)
    a.reset_episode_influence()
    assert torch.equal(a.logits(STATE, head), a.network.logits(STATE, head))


@pytest.mark.parametrize("on", [False, True])
def test_online_directions_turn_only_when_asked(on):
    a = ready("online")
    a.set_online_direction_update(on)
    before = {name: bank.state_dict() for name, bank in a.banks.items()}
    mean_loss(a.logits(STATE, a.head())).backward()
    a.update(mean_loss)
    for name, bank in a.banks.items():
        for key in ("keys", "state", "scale", "observations", "used"):
            assert np.array_equal(bank.state_dict()[key], before[name][key])
        assert np.array_equal(bank.state.directions, before[name]["directions"]) != on
    # later decisions see it
    later = a.logits(STATE, a.head())
    fresh = ready("online").logits(STATE, a.head())
    assert torch.equal(later, fresh) != on


def test_a_residual_changes_later_decisions_only():
    """Bars after t perturbed: decisions and bank bytes up to t stay the same."""
    runs = []
    for shift in (0.0, 1.0):
        a = ready("online")
        a.set_online_direction_update(True)
        seen = []
        for t in range(8):
            state = states(a.network, rows=1, seed=t % 3)
            if t >= 5:
                state = state + shift
            logits = a.logits(state, a.head())
            seen.append((logits.detach().numpy().tobytes(), tuple(hashes(a).values())))
            mean_loss(logits).backward()
            a.update(mean_loss)
        runs.append(seen)
    assert runs[0][:5] == runs[1][:5] and runs[0][5][0] != runs[1][5][0]
