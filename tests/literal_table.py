"""The literal bank and ours on the same streams, as figures and as a Markdown table."""

import numpy as np

from backtest.agent.bank import Bank
from backtest.agent.bank.utility import influence_of
from tests.literal_bank import LiteralBank
from tests.regimes import (
    CENTRES,
    DIM,
    PARAMETERS,
    SIZE,
    TRUE,
    contexts,
    correct,
    corrections,
    regimes,
    residuals,
)

SLOTS = 21
SIGN_NOISE = 0.3  # share of residuals that point the wrong way, in any context
HEADER = ("stream", "measured", "wanted", "literal", "ours")
CELLS = {**PARAMETERS, "aggregate": 25}


def taught(rows, *, ours=PARAMETERS, slots=SLOTS, **both):
    """Return a literal bank and ours after the same observations; ours closed."""
    literal, bank = LiteralBank(slots, DIM, **both), Bank(slots, DIM, **{**ours, **both})
    for h, g in zip(*rows, strict=True):
        literal.update(h, g)
    bank.update_rows(*rows)
    bank.close_collection()
    return literal, bank


def regime_rows(share, length, seed=0):
    """Skills formed and corrections of one regime stream."""
    rng = np.random.default_rng(seed)
    _, h, g = regimes(rng, share, length)
    return compared(f"two regimes {share:.0%}/{1 - share:.0%}, blocks of {length}", h, g)


def mixed_rows(seed=1, rows=1200):
    """Regimes that alternate at random, observation by observation."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, rows)
    h = np.where((which == 0)[:, None], contexts(rng, 0, rows), contexts(rng, 1, rows))
    return compared("two regimes, a new draw each observation", h, residuals(rng, which))


def noisy_rows(seed=2, rows=4000):
    """Residuals of which 30 % point the wrong way, as single residuals on bars do."""
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(rows // 200) % 2, 200)
    h = np.where((which == 0)[:, None], contexts(rng, 0, rows), contexts(rng, 1, rows))
    flip = np.where(rng.random(rows) < SIGN_NOISE, -1, 1)[:, None]
    g = (flip * residuals(rng, which)).astype(np.float32)
    return compared(f"blocks of 200, {SIGN_NOISE:.0%} of signs wrong", h, g, ours=CELLS)


def compared(stream, h, g, **how):
    literal, bank = taught((h, g), **how)
    rng = [np.random.default_rng(99) for _ in range(2)]
    found = correct(literal.search, rng[0]), correct(corrections(bank), rng[1])
    count = int(literal.live.sum()), int(bank.snapshot().eligible.sum())
    return [
        (stream, "skills that can be retrieved", "2", *(f"{n}" for n in count)),
        (stream, "right correction", "> 95 %", *(f"{f.right:.1%}" for f in found)),
        (stream, "corrects an unseen regime", "0 %", *(f"{f.foreign:.1%}" for f in found)),
    ]


def strength_rows(seed=3):
    """How long a direction is, and how large a correction is beside the hidden state."""
    rng = np.random.default_rng(seed)
    _, h, g = regimes(rng, 0.5, 40)
    literal, bank = taught((h, g))
    length = np.linalg.norm(literal.directions[literal.live], axis=1).min()
    ours = np.linalg.norm(bank.state.directions[bank.state.used != 0], axis=1).min()
    x = contexts(rng, 0, 1)
    size = np.linalg.norm(x)
    moved = [np.linalg.norm(s(x)) / size for s in (literal.search, corrections(bank))]
    return [
        ("blocks of 40", "length of a unit direction", "1", f"{length:.2f}", f"{ours:.2f}"),
        ("blocks of 40", "size of correction / size of state", "", *(f"{m:.5f}" for m in moved)),
    ]


def judgement_rows(episodes=300):
    """Four equal users of a bank that pays 0.8, then one that always loses 0.5."""
    bank = Bank(4, DIM, **PARAMETERS, utility_rule="participation")
    literal = LiteralBank(4, DIM)
    bank.state.used[:], bank.state.state[:] = 1, 3
    for _ in range(episodes):
        literal.influence[:] = 1
        literal.end_episode(0.8)
        for slot in range(4):
            bank.add_influence(slot, 1.0)
        bank.end_episode(0.8)
    good = literal.utility[0], bank.state.utility[0]
    bank.clear()
    literal.utility[:] = 0
    bank.state.used[:], bank.state.state[:] = 1, 3
    for _ in range(episodes):
        literal.influence[0] = -1
        literal.end_episode(-0.5)
        bank.add_influence(0, -1.0)
        bank.end_episode(-0.5)
    bad = literal.utility[0], bank.state.utility[0]
    d = np.ones((1, DIM), np.float32)
    influence = [influence_of(d, 0 * d, d, trapezoid=t)[0] / (0.5 * DIM) for t in (False, True)]
    return [
        ("4 equal users, Delta 0.8", "utility of each", "0.8", *(f"{u:.2f}" for u in good)),
        ("harmful skill, Delta -0.5", "its utility", "-0.5", *(f"{u:.2f}" for u in bad)),
        (
            "perfect correction of a quadratic",
            "influence / gain",
            "1",
            *map("{:.2f}".format, influence),
        ),
    ]


def outlier_cosines(representation, threshold, seeds=20, rows=400):
    """Mean cosine of a single skill with the true direction over seeds: literal, ours.

    5 % of the residuals point anywhere and are 20 times as large; every one is an observation.
    """
    cosines = []
    for seed in range(seeds):
        rng = np.random.default_rng(1000 + seed)
        h, g = contexts(rng, 0, rows), residuals(rng, np.zeros(rows, int))
        out = rng.random(rows) < 0.05
        wild = rng.standard_normal((rows, DIM))
        wild *= 20 * SIZE / np.linalg.norm(wild, axis=1, keepdims=True)
        g = np.where(out[:, None], wild, g).astype(np.float32)
        literal, bank = taught(
            (h, g),
            slots=1,
            min_confirmations=1,
            representation=representation,
            direction_threshold=threshold,
        )
        full = representation == "full"
        ours = bank.state.corrections[0] if full else bank.state.directions[0]
        theirs = literal.corrections[0] if full else literal.directions[0]
        cosines.append([v @ TRUE / max(np.linalg.norm(v), 1e-12) for v in (theirs, ours)])
    return np.mean(cosines, axis=0)


def outlier_rows():
    """The single skill of the first article: one slot, one confirmation, 5 % outliers."""
    rows = []
    for threshold, name in ((-0.999, "everything blended"), (0.5, "direction tested")):
        for representation in ("full", "direction_magnitude"):
            found = outlier_cosines(representation, threshold)
            what = f"cosine to the true direction, {representation}"
            rows.append(
                (f"one skill, 5 % outliers, {name}", what, "1", *map("{:.3f}".format, found))
            )
    return rows


def table():
    """Return every row of the comparison: stream, measured, wanted, literal, ours."""
    rows = []
    for share in (0.5, 0.8, 0.95):
        for length in (40, 500):
            rows += regime_rows(share, length)
    return [
        *rows,
        *mixed_rows(),
        *noisy_rows(),
        *strength_rows(),
        *judgement_rows(),
        *outlier_rows(),
    ]


def main():
    """Print the table as Markdown."""
    assert len(CENTRES) == 3
    for row in (HEADER, ["---"] * len(HEADER), *table()):
        print("| " + " | ".join(row) + " |")
