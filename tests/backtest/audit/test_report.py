"""Rows as the schema declares them, and the summary line."""

from backtest.audit.order import disagreements, required_gaps
from backtest.audit.policies import POLICIES
from backtest.audit.report import COLUMNS, Audit, rows
from backtest.schema import declared
from tests.backtest.audit.made import scores

RANKED = {name: 0.1 * (len(POLICIES) - i) for i, name in enumerate(POLICIES)}
SWAPPED = RANKED | {"flat": RANKED["random"], "random": RANKED["flat"]}


def audit(reward, source="synthetic", pnl=None):
    s = scores(reward, pnl)
    return Audit(
        instrument="SP500",
        formula="calibrated",
        source=source,
        rows=(),
        required=(*required_gaps(s, source, 100), *required_gaps(s, source, 1000)),
        warnings=disagreements(s, source, 1000),
        ruined={},
        regime=(),
        notional=0.05,
    )


def test_columns_are_the_schemas():
    assert ("study_id", *COLUMNS) == tuple(declared()["reward_audit"].schema.names)


def test_order_ok_by_policy():
    s = scores(SWAPPED)
    gaps = required_gaps(s, "synthetic", 100)
    found = rows(s, gaps, instrument="SP500", formula="calibrated", source="synthetic")
    assert {row["policy"]: row["order_ok"] for row in found} == {
        "foresight": True,
        "foresight_shrunk": True,
        "foresight_third": True,
        "accurate_60": None,
        "accurate_55": True,  # it lies above flat as before
        "buy_and_hold": None,
        "flat": False,
        "random": False,
        "inverse": True,
    }
    assert {row["horizon"] for row in found} == {100}


def test_summary_when_the_order_holds():
    held = audit(RANKED | {"random": RANKED["inverse"] + 0.05})
    assert held.order_ok
    assert held.failures == ()
    # differences are 0.05 +-0.02, n = 64: 0.05 / (0.02*sqrt(64/63)/8)
    assert held.summary == (
        "audit calibrated synthetic T=100 and 1,000: order holds "
        "(smallest gap 19.8 se between random and inverse, T=100)"
    )


def test_summary_when_it_fails():
    broken = audit(SWAPPED)
    assert not broken.order_ok
    assert {(g.better, g.worse, g.horizon) for g in broken.failures} == {
        ("flat", "random", 100),
        ("flat", "random", 1000),
    }
    assert broken.summary.startswith(
        "audit calibrated synthetic T=100 and 1,000: order FAILS in 2 of 12 gaps, worst T=100: "
        "flat over random: reward -0.1000 a step (-"
    )
    assert "turned by asym" in broken.summary


def test_summary_counts_warnings():
    # the inverse earns most and is scored last: below all eight, one of which is required
    assert audit(RANKED, "bars", {"inverse": 5.0}).summary.endswith("T=100), 7 warnings")
