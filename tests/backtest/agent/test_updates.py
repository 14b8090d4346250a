"""Many updates: the same bits however they are cut, recorded, and wherever experience lies."""

import dataclasses

import numpy as np
import pytest
import torch

from backtest.agent import streams, updates
from backtest.agent.learner import C51Learner
from backtest.agent.replay import Replay
from backtest.agent.streams import Stage
from backtest.agent.update_graph import WARM
from backtest.agent.updates import BLOCK, Updates
from backtest.config import Learner, Network
from tests.backtest.agent.scenario import cases
from tests.backtest.agent.test_experience import ENDS, REWARDS, experience
from tests.backtest.agent.test_learner import SMALL

FIRST = 900
# target copies, each third update, and the last block fall anywhere
TOTAL = 3 * BLOCK + 5


def made(network: Network, device="cpu", **changes) -> Updates:
    settings = Learner(**({"batch": 16, "target_every": 3} | changes))
    forecaster = None
    if network.kind == "scenario":
        forecaster = cases.network(network).forecaster.numpy_state()
    learner = C51Learner(
        network,
        settings,
        streams.generator(0, 0, Stage.WEIGHTS),
        device,
        forecaster=forecaster,
        bypass="detached",
    )
    learner.set_range(500.0)
    bars = np.random.default_rng(0).normal(size=(3100, 115)).astype(np.float32)
    replay = Replay(
        64,
        bars,
        FIRST,
        device,
        prioritised=settings.replay == "prioritised",
        scale=500.0,
        stack_size=network.stack_size,
        context=learner.online.context,
    )
    replay.insert(experience(ENDS, REWARDS), 3, 0.5, 0)
    return Updates(learner, replay, 3, 4, Stage.REPLAY)


def take(subject: Updates, start: int, stop: int) -> np.ndarray:
    return np.concatenate(list(subject.take(start, stop, lambda first: 0.5, lambda: None)))


def assert_same(a: Updates, b: Updates):
    for ours, theirs in (
        (a.learner.online, b.learner.online),
        (a.learner.target, b.learner.target),
    ):
        other = theirs.numpy_state()
        for name, array in ours.numpy_state().items():
            assert np.array_equal(array, other[name]), name
    assert torch.equal(a.replay.columns["priority"], b.replay.columns["priority"])
    assert a.learner.updates == b.learner.updates


def test_segments_do_not_show(monkeypatch):
    whole, cut = made(SMALL), made(SMALL)
    figures = take(whole, 0, TOTAL)
    monkeypatch.setattr(updates, "SEGMENT", 2 * BLOCK)
    parts = list(cut.take(0, TOTAL, lambda first: 0.5, lambda: None))
    assert [len(part) for part in parts] == [16, 13]
    assert np.array_equal(figures, np.concatenate(parts))
    assert_same(whole, cut)


def test_a_block_is_drawn_from_its_own_numbers_and_priorities_as_they_stand():
    subject, plain = made(SMALL), made(SMALL)
    take(subject, 5, 5 + BLOCK + 2)
    for first, count in ((5, BLOCK), (5 + BLOCK, 2)):
        numbers = streams.generator(3, 4, Stage.REPLAY, first).random((count, 16))
        drawn = plain.replay.sample(torch.from_numpy(numbers), 0.5)
        pairs = zip(drawn.row, drawn.weight, strict=True)
        done = [plain.learner.update(plain.replay.batch(*pair)) for pair in pairs]
        plain.replay.set_priority(drawn.row, torch.stack([update.error for update in done]))
    assert_same(subject, plain)


def test_before_is_called_before_each_block_with_its_beta():
    subject, seen = made(SMALL), []

    def beta(first):
        seen.append(first)
        return 0.5

    for _ in subject.take(7, 7 + TOTAL, beta, lambda: seen.append("block")):
        pass
    assert seen == ["block", 7, "block", 15, "block", 23, "block", 31]
    assert list(subject.take(7, 7, beta, lambda: None)) == []


def test_what_is_not_finite_breaks_no_later_draw():
    """The figures are read after more updates were taken: those must not fail in another way."""
    subject = made(SMALL)
    subject.learner.online.first.bias.data.fill_(torch.nan)
    figures = take(subject, 0, TOTAL)
    assert np.isnan(figures[:, 0]).all()
    assert (subject.replay.columns["priority"][:11] >= 1).all()


has_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch finds no CUDA device to record graphs on"
)
CASES = [
    (SMALL, {}),
    (SMALL, {"target_every": 0, "tau": 0.1, "replay": "uniform"}),
    (cases.section(top_k=2), {"weight_decay": 0.01}),
    (cases.section(stack_size=2), {}),
    (SMALL, {"branches": ("direction", "urgency")}),  # no neighbours
]


@pytest.mark.device
@has_gpu
@pytest.mark.parametrize(("network", "changes"), CASES)
def test_a_graph_learns_what_eager_updates_learn(network, changes):
    graph, eager = (made(network, "cuda", **changes) for _ in range(2))
    eager.graph.batch = 0  # a size that no minibatch has
    stop = 0
    for _ in range(2):
        start, stop = stop, stop + TOTAL
        assert np.array_equal(take(graph, start, stop), take(eager, start, stop))
        assert_same(graph, eager)
        assert graph.graph.recorded and not eager.graph.recorded
        for subject in (graph, eager):  # what happens between rounds
            subject.learner.widen_range(2.0)
            subject.replay.insert(experience(ENDS, REWARDS), 3, 0.5, 1)


@pytest.mark.device
@has_gpu
def test_a_block_waits_for_nothing():
    subject = made(SMALL, "cuda")
    take(subject, 0, TOTAL)
    assert subject.graph.recorded
    uniform = torch.rand(BLOCK, 16, dtype=torch.float64, device="cuda")
    figures = torch.empty(BLOCK, 4, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        subject._block(uniform, 0.5, figures)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert figures.isfinite().all()


def test_on_a_cpu_nothing_is_recorded():
    subject = made(SMALL)
    take(subject, 0, WARM + TOTAL)
    assert not subject.graph.recorded


def tensors(x, device="cpu"):
    """The same experience as tensors; portfolios as a view of [T + 1, 13, N]."""
    columns = {
        name: torch.from_numpy(getattr(x, name)).to(device)
        for name in ("action", "reward", "end", "equity")
    }
    turned = torch.from_numpy(np.ascontiguousarray(x.portfolio.swapaxes(1, 2))).to(device)
    return dataclasses.replace(x, portfolio=turned.transpose(1, 2), **columns)


@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=(pytest.mark.device, has_gpu))]
)
def test_experience_on_the_device_fills_the_same_rows(device, stack):
    network = cases.section(stack_size=stack)
    x, made_of = experience(ENDS, REWARDS), [made(network, device).replay for _ in range(2)]
    for replay, given in zip(made_of, (x, tensors(x, device)), strict=True):
        for version in range(6):  # 66 rows into 64 places: the ring turns
            assert replay.insert(given, 3, 0.5, version) == 11
    first, second = (replay.state() for replay in made_of)
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name
