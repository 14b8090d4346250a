"""Plain C51 for one branch, written apart from the product: loops, scatter, no folding.

Follows Bellemare 2017, algorithm 1, with double selection and a dueling head.
"""

import numpy as np
import torch


class PlainC51(torch.nn.Module):
    """A dueling C51 network of `actions` actions on the 128-slot state."""

    def __init__(self, state, actions: int):
        super().__init__()
        self.actions, self.atoms = actions, len(state["value.bias"])
        rows = actions * self.atoms
        self.layers = torch.nn.ParameterDict(
            {
                "w1": state["first.weight"],
                "b1": state["first.bias"],
                "w2": state["hidden.weight"],
                "b2": state["hidden.bias"],
                "wv": state["value.weight"],
                "bv": state["value.bias"],
                "wa": state["advantage.weight"][:rows],
                "ba": state["advantage.bias"][:rows],
            }
        )
        for name, value in self.layers.items():
            self.layers[name] = torch.nn.Parameter(torch.tensor(value))

    def distribution(self, x):
        """[B, actions, atoms] probabilities."""
        w = self.layers
        h = torch.relu(torch.relu(x @ w["w1"].T + w["b1"]) @ w["w2"].T + w["b2"])
        advantage = (h @ w["wa"].T + w["ba"]).view(-1, self.actions, self.atoms)
        value = (h @ w["wv"].T + w["bv"])[:, None]
        return torch.softmax(value + advantage - advantage.mean(1, keepdim=True), -1)


def scatter_projection(places, p, z):
    """Distribute each atom's mass to its two neighbours, one at a time, float64."""
    result = np.zeros(len(z))
    spacing = (z[-1] - z[0]) / (len(z) - 1)
    for place, mass in zip(np.clip(places, z[0], z[-1]), p, strict=True):
        b = (place - z[0]) / spacing
        low = min(int(np.floor(b)), len(z) - 1)
        high = min(low + 1, len(z) - 1)
        result[low] += mass * (1 - (b - low))
        result[high] += mass * (b - low)
    return result


def plain_loss(online, target, x, action, returns, bootstrap, x_next, weight, z):
    """Return (loss, |td| [B]) of one minibatch."""
    with torch.no_grad():
        zt = torch.tensor(z, dtype=torch.float32)
        best = (online.distribution(x_next) @ zt).argmax(1)
        p_next = target.distribution(x_next)
    goals = np.stack(
        [
            scatter_projection(returns[i] + bootstrap[i] * z, p_next[i, best[i]].numpy(), z)
            for i in range(len(x))
        ]
    )
    goal = torch.tensor(goals, dtype=torch.float32)
    p = online.distribution(x)[torch.arange(len(x)), torch.tensor(action)]
    loss = (torch.tensor(weight) * -(goal * torch.log(p)).sum(1)).mean()
    td = ((goal - p.detach()) @ zt).abs()
    return loss, td
