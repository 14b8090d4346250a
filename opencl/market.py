"""The market's kernel files, and what they are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from backtest.market.layout import Array, Fill, Formula

MARKET_FILES = ("philox.cl", "fill.cl", "reward.cl", "market.cl")


@dataclass(frozen=True)
class MarketRules:
    """Parameters that choose code: constants of a program, so that no step asks for them.

    Attributes:
        formula: of the reward.
        fill: where a market order fills.
        whole_lots: trades are cut to multiples of `lot_size`.
    """

    formula: Formula
    fill: Fill
    whole_lots: bool

    @classmethod
    def of(cls, params: Array) -> MarketRules:
        """Return the rules of one `MarketParams` record, shape ()."""
        formula, fill = Formula(int(params["formula"])), Fill(int(params["fill"]))
        return cls(formula, fill, bool(params["lot_size"] > 0))

    def defines(self) -> dict[str, int]:
        """Return them as `Program` sizes."""
        return {
            "CALIBRATED": self.formula == Formula.CALIBRATED,
            "FILLS_AT_CLOSE": self.fill == Fill.CLOSE,
            "WHOLE_LOTS": self.whole_lots,
        }
