"""The Actor in its five modes: what is applied, what is learned, and what must not change."""

import numpy as np
import pytest
import torch

from backtest.agent.bank import ABSTAIN, MISS
from backtest.agent.bank.retrieval import retrieve_rows
from backtest.agent.d2skill import D2SkillActor
from backtest.agent.skill_modes import Mode
from backtest.agent_sections import SkillBank
from backtest.config import Network
from backtest.errors import ConfigError, StoreError
from tests.backtest.agent.skilled import (
    BANK,
    SIZES,
    actor,
    hashes,
    mean_loss,
    network,
    ready,
    skilled,
    states,
)

STATE = states(network())
MODES = list(Mode)
APPLIED = [Mode.EVALUATE, Mode.INFERENCE, Mode.ONLINE]


def gradients(a, logits):
    a.network.zero_grad()
    mean_loss(logits).backward()
    return {n: p.grad.clone() for n, p in a.network.named_parameters() if p.grad is not None}


# Nothing enabled: the network itself


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("on", [False, True])
def test_without_an_enabled_bank_nothing_changes_forward_or_backward(mode, on):
    if on and mode is not Mode.DISABLED:
        return  # an enabled bank in a mode that uses it
    plain = network()
    a = ready(mode, task=on, step=on)
    state = STATE.clone().requires_grad_()
    twin = STATE.clone().requires_grad_()
    out, want = a.logits(state, a.head()), plain.logits(twin, plain.head())
    assert out.detach().numpy().tobytes() == want.detach().numpy().tobytes()
    mean_loss(out).backward()
    mean_loss(want).backward()
    assert state.grad.numpy().tobytes() == twin.grad.numpy().tobytes()
    for (name, p), (_, q) in zip(
        a.network.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert (p.grad is None) == (q.grad is None), name
        assert p.grad is None or p.grad.numpy().tobytes() == q.grad.numpy().tobytes(), name


def test_it_starts_disabled():
    a = skilled(STATE)
    assert a.mode is Mode.DISABLED and a.enabled == {"task": False, "step": False}
    assert torch.equal(a.q_values(STATE), a.network.q_values(STATE))


def test_collect_looks_and_changes_no_output():
    a = ready("collect")
    head = a.head()
    assert torch.equal(a.logits(STATE, head), a.network.logits(STATE, head))
    want, got = (
        gradients(a, a.network.logits(STATE, a.head())),
        gradients(a, a.logits(STATE, a.head())),
    )
    for name in want:
        assert torch.equal(got[name], want[name]), name


# Applied corrections


@pytest.mark.parametrize("mode", APPLIED)
@pytest.mark.parametrize(("task", "step"), [(True, False), (False, True), (True, True)])
def test_hits_are_corrected_and_the_rest_is_the_base_path(mode, task, step):
    a = ready(mode, task, step)
    head = a.head()
    h = dict(zip(("task", "step"), a.network.contexts(STATE), strict=True))
    moved = {}
    for name, on in (("task", task), ("step", step)):
        snapshot = a.banks[name].snapshot(explore=mode is Mode.EVALUATE)
        slots = retrieve_rows(snapshot, h[name].detach().numpy())
        shift = torch.from_numpy(np.where(slots[:, None] >= 0, snapshot.shift[slots], 0))
        moved[name] = h[name] + shift if on else h[name]
        assert not on or (slots >= 0).any()
    want = a.network.logits_from(moved["task"], moved["step"], STATE, head)
    found = a.logits(STATE, head)
    assert torch.equal(found, want)
    assert not torch.equal(found, a.network.logits(STATE, head))


def test_a_miss_and_an_abstention_leave_a_row_bit_for_bit():
    a = ready("inference", task=False)
    head = a.head()
    far = states(a.network, rows=40, seed=9)
    slots = retrieve_rows(a.banks["step"].snapshot(), a.network.contexts(far)[1].detach().numpy())
    base, found = a.network.logits(far, head), a.logits(far, head)
    missed = slots == MISS
    assert missed.any() and torch.equal(found[missed], base[missed])
    bank = a.banks["step"]
    bank.state.keys[3], bank.state.directions[3] = bank.state.keys[0], -bank.state.directions[0]
    bank.state.used[3], bank.state.state[3], bank.state.scale[3] = 1, 3, 0.7
    a.refresh()
    assert a.banks["step"].observe(bank.state.keys[0]) == ABSTAIN
    assert torch.equal(a.logits(STATE[:1], head), a.network.logits(STATE[:1], head))


def test_the_jacobian_is_the_identity_and_d_is_detached():
    """Gradients upstream are those of the same loss at fixed corrections."""
    a = ready("inference")
    head = a.head()
    found = gradients(a, a.logits(STATE, head))
    task, step = a.network.contexts(STATE)
    snapshots = {n: b.snapshot() for n, b in a.banks.items()}
    parts = []
    for name, h in (("task", task), ("step", step)):
        slots = retrieve_rows(snapshots[name], h.detach().numpy())
        parts.append(
            h + torch.from_numpy(np.where(slots[:, None] >= 0, snapshots[name].shift[slots], 0))
        )
    want = gradients(a, a.network.logits_from(*parts, STATE, a.head()))
    assert found.keys() == want.keys()
    for name in want:
        assert torch.equal(found[name], want[name]), name


def test_q_values_include_the_bypass():
    a = ready("inference")
    with torch.no_grad():
        before = a.q_values(STATE)
        a.network.alpha.weight.copy_(torch.tensor([1.0, -1, 2, 0]))
        change = a.q_values(STATE) - before
    want = STATE[:, 121, None] * (a.network.alpha.weight - 0.5)
    assert torch.allclose(change[:, :4], want, atol=1e-6) and not change[:, 4:].any()


def test_a_state_that_is_not_finite_finds_no_skill():
    a = ready("inference")
    bad = STATE.clone()
    bad[0, 112:] = float("nan")
    head = a.head()
    assert torch.equal(a.logits(bad, head)[1:], a.logits(STATE, head)[1:])


# INFERENCE


def test_inference_changes_no_byte():
    a = ready("inference")
    a.set_online_direction_update(True)
    before = hashes(a)
    for _ in range(3):
        mean_loss(a.logits(STATE, a.head())).backward()
        assert a.update(mean_loss) == {}
        a.q_values(STATE)
    a.reset_episode_influence()
    a.task_utility(1.0)
    a.step_utility(-1.0)
    a.soft_update(network(seed=3), 0.5)
    assert hashes(a) == before


def test_disabled_changes_no_byte():
    a = ready("disabled")
    before = hashes(a)
    mean_loss(a.logits(STATE, a.head())).backward()
    a.update(mean_loss)
    a.task_utility(1.0)
    assert hashes(a) == before


# The critic, target updates, weights


def test_the_critic_is_refused():
    with pytest.raises(ConfigError, match="the critic has no skills"):
        D2SkillActor(network(), BANK, critic=True)
    with pytest.raises(ConfigError, match="the critic has no skills"):
        D2SkillActor(network().make_critic(), BANK)


def test_soft_updates_move_weights_and_no_bank():
    a, source = ready("inference"), actor(seed=4)
    before, old = hashes(a), a.network.numpy_state()
    a.soft_update(source, 0.25)
    assert hashes(a) == before
    new, theirs = a.network.numpy_state(), source.network.numpy_state()
    for name in old:
        frozen = name.startswith("forecaster.")
        want = old[name] if frozen else old[name] + 0.25 * (theirs[name] - old[name])
        assert np.allclose(new[name], want, atol=1e-6), name


def test_skills_are_valid_for_their_own_weights_only():
    a = ready("inference")
    a.soft_update(network(seed=3), 0.5)
    with pytest.raises(StoreError, match="were collected on weights"):
        a.set_mode("evaluate")
    a.set_mode("disabled")
    a.clear()
    a.set_mode("collect")


def test_what_is_known_of_contexts_belongs_to_the_weights_too():
    a = actor()
    h = states(a.network, rows=30)
    a.enable(task=False, step=True)
    a.set_mode("collect")
    with torch.no_grad():
        a.banks["step"].fit_context(a.network.contexts(h)[1], np.random.default_rng(0))
    a.soft_update(network(seed=3), 0.5)
    a.clear()
    with pytest.raises(StoreError, match="were collected on weights"):
        a.set_mode("collect")
    a.clear(contexts=True)
    a.set_mode("collect")


def test_clear_empties_both_banks():
    a = ready("evaluate")
    a.clear()
    assert not any(bank.state.used.any() for bank in a.banks.values())
    assert torch.equal(a.logits(STATE, a.head()), a.network.logits(STATE, a.head()))


def test_close_collection_gives_relative_corrections_their_strength():
    section = SkillBank(similarity_threshold=0.7, centering="none", aggregate=1)
    a = actor(section.model_copy(update={"min_confirmations": 1, "slots": 4}))
    a.enable(task=True, step=True)
    a.set_mode("collect")
    mean_loss(a.logits(STATE, a.head())).backward()
    a.update()
    a.set_mode("inference")
    assert torch.equal(a.logits(STATE, a.head()), a.network.logits(STATE, a.head()))
    a.close_collection()
    assert not torch.equal(a.logits(STATE, a.head()), a.network.logits(STATE, a.head()))


def test_a_stack_of_interpretations_corrects_the_newest():
    sizes = Network(**{**SIZES.model_dump(), "stack_size": 3})
    deep = states(network(sizes=sizes))
    a = skilled(deep, sizes=sizes)
    a.enable(task=True, step=True)
    a.set_mode("inference")
    found, base = a.logits(deep, a.head()), a.network.logits(deep, a.head())
    assert found.shape == base.shape and not torch.equal(found, base)


def test_both_banks_are_of_their_own_spaces():
    a = actor(SkillBank())
    assert a.banks["task"].dim == 3 * 3 * 4 and a.banks["step"].dim == 3 * 2 * 4
    assert a.banks["task"].slots == a.banks["step"].slots == SIZES.scenarios
