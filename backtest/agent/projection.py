"""The categorical projection of C51 (Bellemare 2017) without scatter.

Each atom receives `clip(1 - |Tz - z_i|/dz, 0, 1)` of every source atom's mass: no atomics, no
index arithmetic, the same result on every run.
"""

from __future__ import annotations

import torch
from torch import Tensor

CACHED = 2**18  # floats of the largest array on a CPU; larger ones leave its cache


def project(z_target: Tensor, p: Tensor, support: Tensor) -> Tensor:
    """Return the distribution on `support` nearest to (z_target, p), [B, atoms].

    Args:
        z_target: [B, M] places of the source mass; beyond the support it goes to the edge atom.
        p: [B, M] its mass.
        support: [atoms], equally spaced, ascending, at least two.
    """
    low, high = support[0], support[-1]
    spacing = (high - low) / (len(support) - 1)
    places = (z_target.clamp(low, high) - low) / spacing
    atoms = (support - low) / spacing
    rows = len(p) if p.is_cuda else max(1, CACHED // (places.shape[1] * len(atoms)))
    parts = zip(torch.split(places, rows), torch.split(p, rows), strict=True)
    return torch.cat([_spread(*part, atoms) for part in parts])


def _spread(places: Tensor, p: Tensor, atoms: Tensor) -> Tensor:
    """Return the mass [B, atoms] that atoms get of p [B, M] at places [B, M], all in spacings."""
    share = places[:, :, None] - atoms
    # in place on the one [B, M, atoms] array: it is the largest of an update
    torch.sub(torch.ones_like(atoms), share.abs_(), out=share).clamp_(min=0.0)
    return torch.bmm(p[:, None, :], share)[:, 0]
