"""A small scenario network, states for it, and an actor whose banks hold skills."""

import numpy as np
import torch

from backtest.agent.d2skill import D2SkillActor
from backtest.agent.scenario.network import ScenarioNetwork
from backtest.agent_sections import SkillBank
from backtest.config import Network
from tests.backtest.agent.bank.plain import put

SIZES = Network(kind="scenario", scenarios=3, horizon=2, latent=4, hidden=(16, 12), atoms=11)
BANK = SkillBank(
    slots=4,
    similarity_threshold=0.7,
    centering="none",
    aggregate=1,
    min_confirmations=1,
    alpha_unit="raw",
)


def network(seed=0, sizes=SIZES, **arguments):
    result = ScenarioNetwork(sizes, 2.0, np.random.default_rng(seed), **arguments)
    result.forecaster.initialise(np.random.default_rng(100))
    return result


def states(net, rows=6, seed=1):
    """Random states [rows, 128 + C], or with a stack [rows, stack, 128 + C]."""
    rng = np.random.default_rng(seed)
    depth = net.network.stack_size
    slots = torch.from_numpy(rng.standard_normal((rows * depth, 128)).astype(np.float32))
    wide = torch.cat([slots, net.forecaster.context(slots)], dim=1)
    return wide if depth == 1 else wide.view(rows, depth, -1)


def actor(section=BANK, seed=0, sizes=SIZES):
    return D2SkillActor(network(seed, sizes), section)


def skilled(state, rows=(0, 1, 2), **arguments):
    """An actor with a skill at the contexts of some rows of `state`, in both banks."""
    result = actor(**arguments)
    rng = np.random.default_rng(5)
    with torch.no_grad():
        contexts = result.network.contexts(state)
    for bank, h in zip(result.banks.values(), contexts, strict=True):
        for slot, row in enumerate(rows):
            way = rng.standard_normal(bank.dim)
            put(bank, slot, h[row].numpy(), way / np.linalg.norm(way), scale=0.7)
    return result


def mean_loss(logits):
    """Any mean over rows of independent losses."""
    return (logits.softmax(-1)[:, 0, 3].log() + logits[:, 5, 2].sin()).mean()


def hashes(a):
    return {name: bank.content_hash() for name, bank in a.banks.items()}


def ready(mode, task=True, step=True, **arguments):
    """An actor in a mode, with skills at the contexts of `states(network())`."""
    result = skilled(states(network()), **arguments)
    result.enable(task, step)
    result.set_mode(mode)
    return result
