"""What a summary says and what it does not, in plain words; every number is one of the summary's.

Claims are as strong as their intervals: ahead means that the whole interval lies above chance.
"""

from __future__ import annotations

from backtest.figures import UNDEFINED, Figure, counted, number, percent, plain
from backtest.summary import IMPROVEMENT, POLICY, RIVAL, Line, Summary

CHANCE = 0.5
FEW_SEEDS = 10  # below this many, an interval over seeds says little
FEW_TRADES = 30
LITTLE_EXPOSURE = 0.05  # fraction of the bars


def verdict(summary: Summary) -> str:
    """Return one paragraph for people who will not read the table."""
    policy, rival = summary.line(POLICY), summary.line(RIVAL)
    if policy is None:
        return f"Nothing was evaluated out of sample yet. {folds_left_out(summary)}".strip()
    sentences = [
        against_rival(summary, policy, rival),
        against_zero(summary),
        against_random(policy),
        how_much_was_tested(policy),
        how_far_to_trust(summary),
        folds_left_out(summary),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def against_rival(summary: Summary, policy: Line, rival: Line | None) -> str:
    """Say whether the policy beat buy and hold, and by which figures."""
    chance = policy.figure(IMPROVEMENT + RIVAL)
    if rival is None or chance.value is None:
        return (
            f"Out of sample the policy earned {percent(policy.figure('net_return')) or 'nothing'}; "
            "there is no buy and hold to compare it with."
        )
    side = place(chance)
    enough = summary.seeds >= FEW_SEEDS
    words = {
        1: "beat buy and hold" if enough else "was ahead of buy and hold",
        0: "did not beat buy and hold",
        -1: "did worse than buy and hold",
    }[side]
    earned, held = policy.figure("net_return"), rival.figure("net_return")
    text = (
        f"Out of sample the policy {words}: P = {plain(chance, bounds=True)}, net return "
        f"{percent(earned) or 'undefined'} against {percent(held) or 'undefined'}, Sharpe "
        f"{plain(policy.figure('sharpe')) or 'undefined'} against "
        f"{plain(rival.figure('sharpe')) or 'undefined'}."
    )
    if side > 0 and (earned.value or 0.0) < (held.value or 0.0):
        text += " It won more folds and yet earned less in all."
    if (policy.figure("ruined").value or 0.0) > 0:
        text += " It was ruined in at least one seed."
    return text


def against_zero(summary: Summary) -> str:
    """Say in how many seeds the Sharpe alone is above zero beyond chance."""
    bounded = [f for f in summary.by_seed if f.low is not None and f.high is not None]
    if not bounded:
        return ""
    above = sum(1 for f in bounded if f.low is not None and f.low > 0)
    size = f"{summary.confidence:.0%} " if summary.confidence else ""
    return (
        f"Over time, the {size}interval of its Sharpe lies above zero in {above} of "
        f"{counted(len(summary.by_seed), 'seed')}."
    )


def against_random(policy: Line) -> str:
    """Say whether its trades are worth more than as many random ones."""
    chance = policy.figure(IMPROVEMENT + "random")
    if chance.value is None:
        return ""
    words = {
        1: "It was ahead of random trading with the same turnover",
        0: "It cannot be told from random trading with the same turnover",
        -1: "It did worse than random trading with the same turnover",
    }[place(chance)]
    return f"{words} (P = {plain(chance, bounds=True)})."


def how_much_was_tested(policy: Line) -> str:
    """Warn when the policy hardly traded."""
    exposure, trades = policy.figure("exposure"), policy.figure("n_trades")
    if exposure.value is not None and exposure.value < LITTLE_EXPOSURE:
        return f"It held a position on only {percent(exposure)} of the bars: little was tested."
    if trades.value is not None and trades.value < FEW_TRADES:
        return f"It closed only {number(trades)} trades: little was tested."
    return ""


def how_far_to_trust(summary: Summary) -> str:
    """Say what the intervals do not cover."""
    text = "P resamples seeds within folds, not the years themselves"
    if summary.seeds >= FEW_SEEDS:
        return f"{text}."
    few = "1 seed is" if summary.seeds == 1 else f"{summary.seeds} seeds are"
    return f"{text}, and {few} too few for it to say much: use {FEW_SEEDS} or more."


def folds_left_out(summary: Summary) -> str:
    """Say which folds the figures do not hold."""
    left = {s: n for s, n in sorted(summary.folds.items()) if s != "complete" and n}
    if not left:
        return ""
    listed = ", ".join(f"{n} {status}" for status, n in left.items())
    return f"Folds not in these figures: {listed}."


def place(chance: Figure) -> int:
    """Return 1 or -1 where the whole interval lies above or below chance, else 0."""
    if chance == UNDEFINED or chance.low is None or chance.high is None:
        return 0
    return int(chance.low > CHANCE) - int(chance.high < CHANCE)
