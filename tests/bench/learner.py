"""Updates a second of the learner: eager, and on a GPU of NVIDIA as a graph that is replayed.

Before the clock starts both must have learned the same parameters, and the row says how equal. A
share is the sum of all kernels' times, from a profile, over the wall time of as many updates
without one, draws and priorities included; syncs are the calls by which the host waited for the
device, the profile's own two and the reading of the figures included. On a CPU one thread learns,
as in training.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

from backtest.agent.experience import Experience
from backtest.agent.learner import C51Learner
from backtest.agent.replay import Replay
from backtest.agent.scenario.forecaster import Forecaster
from backtest.agent.streams import Stage, generator
from backtest.agent.updates import Updates
from backtest.agent.weights import N_BAR
from backtest.config import Learner, Network
from backtest.market.layout import End
from opencl.devices import Device
from tests.bench.rows import REPEATS, Row

BARS, STEPS, EPISODES = 2000, 512, 256  # of the experience
BATCHES = (256, 4096)
SMALL = {"scenarios": 8, "horizon": 6, "latent": 8}  # of the smoke test
LARGE = {"scenarios": 21, "horizon": 12, "latent": 16}  # of production
CHECKED = 24  # updates that both ways take before the clock starts, two target copies among them
GPU_UPDATES, CPU_UPDATES = 128, 8  # a measurement
EAGER_SHARE = 4  # times fewer where a GPU waits for the host anyway
PROFILED = 32  # updates
TOLERANCE = 1e-6  # of parameters; libraries may choose another product for another stream


def run(device: Device, quick: bool = False) -> list[Row]:
    """Measure torch's own device beside an OpenCL device."""
    gpu = device.kind == "gpu" and torch.cuda.is_available()
    rows = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, network in networks(gpu).items():
            for batch in BATCHES[:1] if quick else BATCHES:
                rows += measure(name, network, batch, "cuda" if gpu else "cpu", quick)
    finally:
        torch.set_num_threads(threads)
    return rows


def networks(gpu: bool) -> dict[str, Network]:
    """Return the networks to measure by what the rows call them."""
    sizes = LARGE if gpu else SMALL
    shown = " ".join(f"{name[0].upper()} {size}" for name, size in sizes.items())
    return {"mlp": Network(), f"scenario {shown}": Network(kind="scenario", **sizes)}


def measure(name: str, network: Network, batch: int, device: str, quick: bool) -> list[Row]:
    """Return the rows of one network and size of minibatches."""
    gpu = device != "cpu"
    ways = {"eager": made(network, batch, device)}
    ways["eager"].graph.batch = 0  # a size that no minibatch has: nothing is recorded
    equal = ""
    if gpu:
        ways["graph"] = made(network, batch, device)
        equal = check(name, *ways.values())
    counts = {"eager": GPU_UPDATES // EAGER_SHARE if gpu else CPU_UPDATES, "graph": GPU_UPDATES}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(2 if quick else REPEATS + 1):  # the first does not count
        for way, updates in ways.items():
            clock = time.perf_counter()
            take(updates, counts[way])
            seconds[way].append((time.perf_counter() - clock) / counts[way])
    slow = median(seconds["eager"][1:])
    rows = []
    for way, updates in ways.items():
        took = median(seconds[way][1:])
        detail = f"{1e3 * took:,.3g} ms"
        if gpu:
            kernels, waits = profile(updates)
            detail += f", {kernels / took:.0%} of the time in kernels"
            detail += f", {waits} syncs in {PROFILED} updates"
        if way == "graph":
            detail += f"; {slow / took:,.1f} times eager, {equal}"
        what = f"learner, {name}, batch {batch:,}, {way}"
        curve = {"series": f"{name}, {way}", "axis": "batch", "x": batch}
        rows.append(Row(what, 1 / took, "updates/s", detail, **curve))
        if way == "graph":
            aimed = "learner_busy" if (name, batch) == ("mlp", BATCHES[-1]) else ""
            rows.append(Row(f"{what}: time in kernels", 100 * kernels / took, "%", goal=aimed))
    return rows


def made(network: Network, batch: int, device: str) -> Updates:
    """Return a learner with a replay that holds one round of random experience."""
    rng = np.random.default_rng(0)
    forecaster = None
    if network.kind == "scenario":
        fresh = Forecaster(network)
        fresh.initialise(rng)
        forecaster = fresh.numpy_state()
    settings = Learner(batch=batch, target_every=CHECKED // 2)
    learner = C51Learner(
        network,
        settings,
        generator(0, 0, Stage.WEIGHTS),
        device,
        forecaster=forecaster,
        bypass="detached",
    )
    learner.set_range(3.0)
    bars = rng.normal(size=(BARS, N_BAR)).astype(np.float32)
    replay = Replay(STEPS * EPISODES, bars, 0, device, context=learner.online.context, scale=3.0)
    replay.insert(experience(rng), settings.n_step, settings.gamma, 0)
    return Updates(learner, replay, 0, 0, Stage.REPLAY)


def experience(rng: np.random.Generator) -> Experience:
    """Return episodes of noise that end in their last step."""
    shape = STEPS, EPISODES
    end = np.zeros(shape, np.uint8)
    end[-1] = End.TRUNCATED
    return Experience(
        start=rng.integers(0, BARS - STEPS - 1, EPISODES).astype(np.int32),
        action=rng.integers(0, 3, (*shape, 4)).astype(np.uint8),
        reward=rng.normal(size=shape).astype(np.float32),
        end=end,
        portfolio=rng.normal(size=(STEPS + 1, EPISODES, 13)).astype(np.float32),
        components=None,
        equity=np.zeros(shape, np.float32),
    )


def take(updates: Updates, count: int) -> None:
    """Take the next updates and wait for their figures."""
    done = updates.learner.updates
    for figures in updates.take(done, done + count, lambda _: 0.5, lambda: None):
        assert np.isfinite(figures).all()


def check(name: str, eager: Updates, graph: Updates) -> str:
    """Learn both ways from the same start, and say how far apart the parameters are."""
    for updates in (eager, graph):
        take(updates, CHECKED)
    a, b = (u.learner.online.numpy_state() for u in (eager, graph))
    apart = max(float(np.abs(a[key] - b[key]).max()) for key in a)
    if not apart <= TOLERANCE:
        raise AssertionError(f"{name}: a graph learned parameters {apart:.2g} off; not timed")
    return "the same bits" if apart == 0 else f"within {apart:.1g}"


def profile(updates: Updates) -> tuple[float, int]:
    """Return the seconds an update that kernels took, and how often the host waited in all."""
    from torch.profiler import ProfilerActivity

    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as seen:
        take(updates, PROFILED)
    found = seen.key_averages()
    kernels = sum(e.self_device_time_total for e in found if e.device_type.name == "CUDA")
    waits = sum(e.count for e in found if "Synchronize" in e.key)
    return kernels * 1e-6 / PROFILED, waits
