"""Skill banks: latent corrections that are learned, retrieved by context and judged by PnL.

Read codes, snapshot, ordered, state, retrieval, lifecycle, update, aggregation, utility, bank.
"""

from backtest.agent.bank.bank import Bank
from backtest.agent.bank.codes import Decision, SlotState
from backtest.agent.bank.snapshot import ABSTAIN, MISS, Snapshot

__all__ = ["ABSTAIN", "MISS", "Bank", "Decision", "SlotState", "Snapshot"]
