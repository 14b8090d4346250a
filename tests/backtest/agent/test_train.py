import dataclasses
import pickle

import numpy as np
import pytest

from backtest.agent import train_fold
from backtest.agent.kinds import forward
from backtest.agent.learner import C51Learner
from backtest.agent.result import DivergenceError, StoppedError
from backtest.agent.support import EDGE_LIMIT
from backtest.errors import BacktestError, ConfigError, DataError, StoreError
from tests.backtest.agent.toy import (
    FIRST_BAR,
    ToyCollector,
    ToyEvaluator,
    bar_part,
    best_values,
    plan,
    settings,
)

TINY = {"updates": 60, "epochs": 3, "batch": 16, "envs": 8, "episode_steps": 64}


def train(the_plan, collector=None, evaluator=None):
    branches = the_plan.learner.branches
    return train_fold(
        the_plan,
        collector or ToyCollector(the_plan.learner),
        evaluator or ToyEvaluator(branches),
    )


def learned_values(weights):
    """Q[context, position + 1, direction] of a trained policy."""
    contexts = [(c - FIRST_BAR) % 3 for c in range(3)]  # rows whose context is 0, 1, 2
    q = np.zeros((3, 3, 4))
    for position in (-1, 0, 1):
        portfolio = np.zeros((3, 13), np.float32)
        portfolio[:, 0] = position
        q[:, position + 1] = forward(weights, bar_part()[contexts], portfolio)[:, :4]
    return q


def assert_optimal(q, best):
    """Greedy in q loses nothing, whatever the position."""
    chosen = np.take_along_axis(best, q.argmax(2)[:, :, None], 2)[:, :, 0]
    np.testing.assert_allclose(chosen, best.max(2), atol=1e-6)


def last_epoch():
    """Scores that rise, so that the last epoch is kept."""
    return ToyEvaluator(script=[1.0, 2.0, 3.0])


def test_it_learns_the_optimal_policy_and_its_values():
    trained = train(plan(), evaluator=last_epoch())
    q, best = learned_values(trained.weights), best_values(0.5)
    np.testing.assert_allclose(q, best, atol=0.1)
    assert_optimal(q, best)
    losses = [row["loss"] for row in trained.curves]
    assert losses[-1] < losses[0]


def test_termination_stops_the_bootstrap_and_truncation_does_not():
    # long over the small move is ruin; all other episodes are truncated after 64 steps
    changes = settings(envs=64)
    trained = train(plan(learner=changes), ToyCollector(changes, ruin=True), last_epoch())
    q, best = learned_values(trained.weights), best_values(0.5, ruin=True)
    # ruin earns its last reward only: .1 - .3*|1 - position| and nothing after it
    np.testing.assert_allclose(best[2, :, 2], [-0.5, -0.2, 0.1], atol=1e-9)
    np.testing.assert_allclose(q[2, :, 2], best[2, :, 2], atol=0.12)
    # long before context 0 would follow ruin, so experience hardly holds that state
    q[0, 2], best[0, 2] = 0, 0
    np.testing.assert_allclose(q, best, atol=0.15)
    assert_optimal(q, best)


def test_three_step_returns_and_uniform_replay_find_the_policy_too():
    changes = settings(n_step=3, replay="uniform", branches=("direction", "magnitude"))
    trained = train(plan(learner=changes))
    best = best_values(0.5)
    q = learned_values(trained.weights)
    chosen = np.take_along_axis(best, q.argmax(2)[:, :, None], 2)[:, :, 0]
    # multi-step returns without correction carry the exploration of their later steps
    assert (best.max(2) - chosen).max() < 0.25


def tiny(**changes):
    return plan(learner=settings(**(TINY | changes)))


def without_times(curves):
    return [
        {k: v for k, v in row.items() if k not in ("steps_per_s", "updates_per_s")}
        for row in curves
    ]


def assert_same(a, b):
    assert a.weights.weight_hash == b.weights.weight_hash
    assert without_times(a.curves) == without_times(b.curves)
    for name in ("v_max", "edge_mass", "range_failed", "steps", "updates", "best_epoch"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("validation", "train"):
        x, y = getattr(a.best, name), getattr(b.best, name)
        assert (x.sharpe, x.pnl) == (y.sharpe, y.pnl)
        assert np.array_equal(x.returns, y.returns)


def test_the_same_seed_gives_the_same_bits():
    first = train(tiny(branches=("direction", "magnitude")))
    assert_same(first, train(tiny(branches=("direction", "magnitude"))))
    other = train(dataclasses.replace(tiny(branches=("direction", "magnitude")), seed=1))
    assert other.weights.weight_hash != first.weights.weight_hash


class StopAfter:
    """A stop flag that is raised at the n-th question."""

    def __init__(self, questions):
        self.left = questions

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("target", [{"target_every": 7}, {"target_every": 0, "tau": 0.1}])
def test_stop_and_resume_is_bit_identical(tmp_path, target):
    script = [0.1, 0.3, 0.2]
    whole = train(tiny(**target), evaluator=ToyEvaluator(script=script))
    path = tmp_path / "state.safetensors"
    # an epoch of 20 updates asks once before it and once per block of 8: stop within epoch 2
    stopped = dataclasses.replace(tiny(**target), state_file=path, stop=StopAfter(4 + 4 + 2))
    with pytest.raises(
        StoppedError, match=rf"epoch 2 of 3; run again to resume from .*{path.name}"
    ):
        train(stopped, evaluator=ToyEvaluator(script=script))
    collector = ToyCollector(stopped.learner)
    evaluator = ToyEvaluator(script=script, seen=["train", "validation"] * 2)
    resumed = train(dataclasses.replace(tiny(**target), state_file=path), collector, evaluator)
    assert [call[0] for call in collector.calls] == [2]
    assert_same(whole, resumed)
    assert resumed.best_epoch == 1
    assert not path.exists()  # a finished run has nothing to resume


def test_stopping_early_resumes_nothing(tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(StoppedError, match="epoch 0 of 3; nothing is saved"):
        train(dataclasses.replace(tiny(), state_file=path, stop=lambda: True))
    assert not path.exists()


def stop_in_epoch_two(path):
    with pytest.raises(StoppedError):
        train(dataclasses.replace(tiny(), state_file=path, stop=StopAfter(10)))


def test_a_state_of_another_plan_is_not_continued(tmp_path):
    path = tmp_path / "state.safetensors"
    stop_in_epoch_two(path)
    other = dataclasses.replace(tiny(), state_file=path, seed=5)
    collector = ToyCollector(other.learner)
    train(other, collector)
    assert [call[0] for call in collector.calls] == [0, 1, 2]


@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_state_is_refused_and_kept(tmp_path, damage):
    path = tmp_path / "state.safetensors"
    stop_in_epoch_two(path)
    content = bytearray(path.read_bytes())
    content = content[:-100] if damage == "truncate" else content[:-1] + bytes([content[-1] ^ 1])
    path.write_bytes(content)
    collector = ToyCollector(tiny().learner)
    with pytest.raises(StoreError, match=r"state\.safetensors"):
        train(dataclasses.replace(tiny(), state_file=path), collector)
    assert path.read_bytes() == content
    assert collector.calls == []


def test_rounds_explore_less_and_play_the_current_policy():
    collector = ToyCollector(tiny().learner)
    trained = train(tiny(), collector)
    rounds, epsilons, hashes = zip(*collector.calls, strict=True)
    assert rounds == (0, 1, 2)
    assert epsilons == pytest.approx((1, 1 - 0.95 * 20 / 24, 0.05))
    assert len(set(hashes)) == 3
    assert [row["epsilon"] for row in trained.curves] == list(epsilons)


@pytest.mark.parametrize(
    ("script", "best", "epochs"),
    [
        ([None, 1.0, 1.0, 0.5], 1, 4),  # None is lowest, a tie keeps the earlier
        ([None, None, None, None], 0, 4),
        ([0.4, 0.3, 0.2, 9.0], 0, 3),  # two epochs without a better one: stop
        ([-2.0, -1.0, None, -3.0], 1, 4),
    ],
)
def test_the_best_epoch_by_validation_is_kept(script, best, epochs):
    collector = ToyCollector(tiny().learner)
    patience = 2 if epochs == 3 else 100
    trained = train(
        tiny(epochs=4, updates=40, patience=patience), collector, ToyEvaluator(script=script)
    )
    assert trained.best_epoch == best
    assert len(trained.curves) == epochs
    assert trained.best.validation.sharpe == script[best]
    assert [row["validation_sharpe"] for row in trained.curves] == script[:epochs]
    if best + 1 < epochs:  # the collector of the next epoch plays exactly the kept weights
        assert collector.calls[best + 1][2] == trained.weights.weight_hash
    assert trained.updates == 10 * epochs
    assert trained.best.update == 10 * (best + 1)


def test_test_is_never_asked_for():
    evaluator = ToyEvaluator()
    train(tiny(), evaluator=evaluator)
    assert evaluator.seen == ["train", "validation"] * 3


def test_curves_and_progress_report_every_epoch():
    seen = []
    the_plan = dataclasses.replace(tiny(), progress=lambda *a: seen.append(a))
    trained = train(the_plan)
    row = trained.curves[-1]
    assert list(row) == [
        *("epoch", "loss", "q_mean", "epsilon", "train_sharpe", "validation_sharpe"),
        *("entropy_direction", "entropy_magnitude", "entropy_order", "entropy_urgency"),
        *("steps_per_s", "updates_per_s", "steps", "updates", "v_max", "edge_mass"),
    ]
    assert row["epoch"] == 2
    assert row["steps"] == trained.steps == 3 * 8 * 64
    assert row["updates"] == trained.updates == 60
    assert 0 <= row["entropy_direction"] <= np.log(4)
    assert row["entropy_order"] == 0
    assert trained.v_min == -trained.v_max == -3
    assert [a[2] for a in seen if a[2] is not None] == trained.curves
    assert [a[:2] for a in seen if a[2] is None] == [
        (u, 60) for e in range(3) for u in (20 * e + 8, 20 * e + 16, 20 * e + 20)
    ]


def test_the_range_comes_from_the_first_experience():
    trained = train(tiny(v_max=None, episode_steps=256))
    # rewards of the exploring policy spread about 1.1: 4*1.1/sqrt(1 - .25)
    assert 3 < trained.v_max < 7
    with pytest.raises(ConfigError, match=r"learner\.v_max"):
        train(tiny(v_max=None, episode_steps=128))


def test_a_range_too_narrow_is_widened_once_and_then_fails():
    changes = settings(
        **(TINY | {"v_max": None, "episode_steps": 256, "epochs": 5, "updates": 200})
    )
    calm = train(plan(learner=changes))
    assert not calm.range_failed
    v = calm.curves[0]["v_max"]
    assert [row["v_max"] for row in calm.curves] == [v] * 5
    later = {1: 20.0, 2: 20.0, 3: 20.0, 4: 20.0}
    trained = train(plan(learner=changes), ToyCollector(changes, scale=later))
    assert [row["v_max"] for row in trained.curves] == [v, v, 2 * v, 2 * v, 2 * v]
    assert trained.curves[1]["edge_mass"] > EDGE_LIMIT
    assert trained.range_failed
    assert trained.edge_mass == trained.curves[-1]["edge_mass"]


def test_a_given_range_is_not_widened_but_flagged():
    trained = train(tiny(v_max=0.2))
    assert trained.v_max == 0.2
    assert trained.range_failed


def test_a_loss_that_is_not_finite_keeps_the_last_good_policy(monkeypatch):
    update = C51Learner.update

    def poisoned(self, batch):
        if self.updates == 25:
            with np.errstate(all="ignore"):
                next(self.online.parameters()).data.fill_(float("nan"))
        return update(self, batch)

    monkeypatch.setattr(C51Learner, "update", poisoned)
    collector = ToyCollector(tiny().learner)
    with pytest.raises(
        DivergenceError, match=r"seed 0, epoch 1, update 25: loss nan.*epoch 0"
    ) as e:
        train(tiny(), collector)
    assert isinstance(e.value, BacktestError)
    assert e.value.trained.best_epoch == 0
    assert e.value.trained.weights.weight_hash == collector.calls[1][2]
    assert len(e.value.trained.curves) == 1


def test_a_last_step_that_overflows_is_seen(monkeypatch):
    update = C51Learner.update

    def overflowing(self, batch):
        result = update(self, batch)
        if self.updates == 60:
            next(self.online.parameters()).data.fill_(float("inf"))
        return result

    monkeypatch.setattr(C51Learner, "update", overflowing)
    with pytest.raises(DivergenceError, match=r"epoch 2, update 59") as caught:
        train(tiny())
    assert len(caught.value.trained.curves) == 2


def test_the_error_survives_a_process_boundary():
    error = DivergenceError("seed 0: loss nan", train(tiny(epochs=1)))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.trained.weights.weight_hash == error.trained.weights.weight_hash


def test_a_gradient_that_explodes_at_once_has_no_checkpoint():
    with pytest.raises(DivergenceError, match="no checkpoint yet") as caught:
        train(tiny(learning_rate=1e38))
    assert caught.value.trained is None


def test_experience_that_must_not_be_learned_from_is_refused():
    collector = ToyCollector(tiny().learner, scale={1: np.nan})
    with pytest.raises(DataError, match="not finite"):
        train(tiny(), collector)
    narrow = dataclasses.replace(tiny(), bar_part=bar_part()[:300])
    with pytest.raises(DataError, match=r"leaves the train rows \[1000, 1300\)"):
        train(narrow)


def test_rows_after_the_last_bar_do_not_matter():
    # the trainer reads what the plan holds; more rows behind it change nothing
    longer = dataclasses.replace(tiny(), bar_part=np.concatenate([bar_part(), 9 + bar_part()]))
    assert train(longer).weights.weight_hash == train(tiny()).weights.weight_hash


def test_fewer_updates_than_epochs_still_reports():
    trained = train(tiny(updates=2, epochs=3))
    assert [row["loss"] is None for row in trained.curves] == [True, False, False]
    assert trained.updates == 2


@pytest.mark.device
def test_a_gpu_repeats_itself_bit_for_bit():
    on_gpu = dataclasses.replace(tiny(), device="cuda")
    assert_same(train(on_gpu), train(on_gpu))
