"""The study's figures against the store's own view of the same rows; the state of every fold."""

import numpy as np
import pytest

from backtest.evaluation.fold_rows import fold_row
from backtest.evaluation.metrics import METRICS
from backtest.lake import read_table
from backtest.manifest import FoldHeader
from backtest.queries import query
from backtest.store import fold_result, write_fold_result
from backtest.walk_forward import publish_study
from tests.study import FOLDS, PARTIAL, copied

BOTH = 'study.instruments=["ONE","TWO"]'


def rows(study, sql):
    return query(study.lake, sql).rows


def metric(study, scope, name, where="true"):
    """Values by (variant, seed) of one metric."""
    sql = f"SELECT variant, seed, value FROM metric WHERE name = '{name}' AND {where}"
    found = rows(study, f"{sql} AND scope = '{scope}'")
    return {(row["variant"], row["seed"]): row["value"] for row in found}


class TestFigures:
    @pytest.mark.parametrize("name", ["ONE", "TWO"])
    def test_returns_are_those_of_the_stitched_view(self, study, name):
        sql = f"SELECT * FROM oos_equity WHERE instrument = '{name}' ORDER BY bar"
        lines = {}
        for row in rows(study, sql):
            lines.setdefault((row["variant"], row["seed"]), []).append(row)
        capital = study.config.market.initial_capital
        owner = f"scope_id = '{study.study_id}/{name}' AND seed >= -1"
        found = metric(study, "instrument", "net_return", owner)
        depth = metric(study, "instrument", "max_drawdown", owner)
        keys = [("none", 0), ("none", 1), ("buy_and_hold", -1), ("random", 0), ("chosen", 1)]
        assert set(keys) <= set(found) == set(lines)
        for key, line in lines.items():
            equity = np.array([row["equity"] for row in line])
            assert found[key] == pytest.approx(equity[-1] / capital - 1, abs=1e-12)
            peak = np.maximum.accumulate(np.maximum(equity, capital))
            assert depth[key] == pytest.approx(np.max((peak - equity) / peak), abs=1e-12)
            # two complete folds of 168 bars; the partial one stays out
            assert len(line) == 336

    def test_ratios_rest_on_the_daily_pnl_of_the_view(self, study):
        sql = (
            "SELECT variant, seed, time::DATE - (time = date_trunc('day', time))::INT AS day, "
            "pnl_cum, bar FROM oos_equity WHERE instrument = 'ONE' ORDER BY bar"
        )
        pnl = {}
        for row in rows(study, sql):
            days = pnl.setdefault((row["variant"], row["seed"]), {})
            days[row["day"]] = row["pnl_cum"]
        found = metric(study, "instrument", "sharpe", f"scope_id = '{study.study_id}/ONE'")
        for key, days in pnl.items():
            daily = np.diff(list(days.values()), prepend=0)
            assert len(daily) == 14
            if daily.std() == 0:
                assert found[key] is None
            else:
                ratio = daily.mean() / daily.std(ddof=1) * np.sqrt(365)
                assert found[key] == pytest.approx(ratio, rel=1e-9)

    def test_trades_costs_and_liquidation_add_up_over_folds(self, study):
        owner = f"scope_id = '{study.study_id}/ONE' AND seed >= -1"
        complete = (
            "scope_id IN (SELECT fold_id FROM fold WHERE instrument = 'ONE' "
            "AND status = 'complete')"
        )
        for name in ("n_trades", "n_open", "turnover", "liquidation_cost"):
            sql = (
                f"SELECT variant, seed, sum(value) AS value FROM metric WHERE name = '{name}' "
                f"AND scope = 'fold' AND seed >= -1 AND {complete} GROUP BY ALL"
            )
            folds = {(row["variant"], row["seed"]): row["value"] for row in rows(study, sql)}
            found = metric(study, "instrument", name, owner)
            # draws of the random baseline other than 0 have metrics, but no record to stitch
            assert found == {key: pytest.approx(folds[key]) for key in found}
        assert metric(study, "instrument", "n_open", owner)["buy_and_hold", -1] == 2
        assert metric(study, "instrument", "liquidation_cost", owner)["buy_and_hold", -1] > 0
        assert metric(study, "instrument", "liquidation_cost", owner)["flat", -1] == 0

    def test_figures_over_seeds(self, study):
        owner = f"scope_id = '{study.study_id}/ONE'"
        for name in ("net_return", "max_drawdown", "turnover"):
            found = metric(study, "instrument", name, owner)
            mean = (found["none", 0] + found["none", 1]) / 2
            assert found["none", -2] == pytest.approx(mean)
            assert found["chosen", -2] == found["none", -2]
        bounds = rows(
            study,
            f"SELECT name, low, high, value, n FROM metric WHERE {owner} AND seed = -2 "
            "AND variant = 'none' AND low IS NOT NULL",
        )
        names = {row["name"] for row in bounds}
        assert {"net_return", "p_improvement_over_buy_and_hold"} <= names
        for row in bounds:
            assert row["low"] <= row["value"] <= row["high"]

    def test_every_record_has_every_metric(self, study):
        sql = (
            "SELECT scope, scope_id, variant, seed, list(name) AS names FROM metric "
            "WHERE NOT starts_with(name, 'p_improvement') GROUP BY ALL"
        )
        for row in rows(study, sql):
            assert set(row["names"]) == {*METRICS, "liquidation_cost"}, row

    def test_intervals_over_time(self, study):
        sql = (
            "SELECT name, value, low, high, n FROM metric WHERE scope = 'instrument' "
            "AND variant = 'buy_and_hold' AND low IS NOT NULL"
        )
        assert {row["name"] for row in rows(study, sql)} == {"sharpe"}  # no trade was closed
        sql = sql.replace("variant = 'buy_and_hold'", "variant = 'random' AND seed = 0")
        found = {row["name"]: row for row in rows(study, sql)}
        assert set(found) == {"sharpe", "expectancy"}
        assert found["sharpe"]["n"] == 14
        for row in found.values():
            assert row["low"] < row["value"] < row["high"]

    def test_instruments_together(self, study):
        one, two = (
            metric(study, "instrument", "net_return", f"scope_id = '{study.study_id}/{name}'")
            for name in ("ONE", "TWO")
        )
        both = metric(study, "study", "net_return")
        runs = [found["none", seed] for found in (one, two) for seed in (0, 1)]
        # the middle half of four runs
        assert both["none", -2] == pytest.approx(np.mean(sorted(runs)[1:3]))
        held = [found["buy_and_hold", -1] for found in (one, two)]
        assert both["buy_and_hold", -2] == pytest.approx(np.mean(held))
        assert {seed for _, seed in both} == {-2}

    def test_probability_of_improvement(self, study):
        sql = (
            "SELECT name, value FROM metric WHERE scope = 'instrument' AND variant = 'chosen' "
            f"AND scope_id = '{study.study_id}/ONE' AND starts_with(name, 'p_improvement')"
        )
        found = {row["name"]: row["value"] for row in rows(study, sql)}
        assert len(found) == 5
        sharpe = [
            metric(study, "fold", "sharpe", f"seed >= -1 AND scope_id = '{fold_id}'")
            for fold_id in (study.fold_id("ONE", study.fold("ONE", key)) for key in FOLDS[:2])
        ]
        for baseline in ("buy_and_hold", "flat"):
            wins = []
            for fold in sharpe:
                rival = fold[baseline, -1] or 0.0
                mine = [fold["none", seed] or 0.0 for seed in (0, 1)]
                wins.append(np.mean([(x > rival) + 0.5 * (x == rival) for x in mine]))
            assert found[f"p_improvement_over_{baseline}"] == pytest.approx(np.mean(wins))

    def test_the_summary_view_shows_seeds_together(self, study):
        sql = (
            "SELECT variant, value FROM walk_forward_summary WHERE instrument = 'TWO' "
            "AND name = 'net_return'"
        )
        shown = {row["variant"]: row["value"] for row in rows(study, sql)}
        found = metric(study, "instrument", "net_return", f"scope_id = '{study.study_id}/TWO'")
        assert shown["chosen"] == found["chosen", -2]
        assert shown["flat"] == found["flat", -1] == 0


class TestPlan:
    def test_every_fold_has_one_row(self, study):
        sql = (
            "SELECT instrument, fold_key, status, reason FROM fold WHERE NOT superseded "
            "ORDER BY instrument, fold_key"
        )
        found = {
            (r["instrument"], r["fold_key"]): (r["status"], r["reason"]) for r in rows(study, sql)
        }
        missing = ("missing", "no result: materialise fold_result")
        assert found == {
            ("ONE", FOLDS[0]): ("complete", None),
            ("ONE", FOLDS[1]): ("complete", None),
            ("ONE", FOLDS[2]): missing,
            ("ONE", PARTIAL): ("partial", "the test window has not ended"),
            ("TWO", FOLDS[0]): ("complete", None),
            ("TWO", FOLDS[1]): ("complete", None),
            ("TWO", FOLDS[2]): missing,
            ("TWO", PARTIAL): missing,
        }

    def test_a_failed_fold_is_neither_stitched_nor_planned(self, study, tmp_path):
        failing = copied(study, tmp_path, BOTH)
        fold = failing.fold("ONE", FOLDS[2])
        owner = header(failing, "ONE", fold)
        row = fold_row(fold, failing.bars("ONE"), None)
        row |= {"status": "failed", "reason": "the device fell over"}
        write_fold_result(failing.lake, owner, {"fold": [row]})
        published = publish_study(failing, "again")
        sql = f"SELECT status FROM fold WHERE fold_id = '{owner.fold_id}'"
        assert rows(failing, sql) == [{"status": "failed"}]
        assert published.problems == ()
        name = f"scope_id = '{study.study_id}/ONE'"
        assert metric(failing, "instrument", "net_return", name) == metric(
            study, "instrument", "net_return", name
        )

    def test_a_seed_that_a_fold_lacks_has_no_record(self, study, tmp_path):
        fewer = copied(study, tmp_path, BOTH)
        owner = header(fewer, "ONE", fewer.fold("ONE", FOLDS[1]))
        manifest = fold_result(fewer.lake, owner)
        tables = {name: read_table(manifest.path(name)) for name in manifest.files}
        tables = {
            name: table.filter([row.get("seed") != 1 for row in table.to_pylist()])
            for name, table in tables.items()
        }
        write_fold_result(fewer.lake, owner, tables)
        publish_study(fewer, "again")
        name = f"scope_id = '{study.study_id}/ONE'"
        found = metric(fewer, "instrument", "net_return", name)
        assert ("none", 1) not in found
        assert found["none", 0] == metric(study, "instrument", "net_return", name)["none", 0]
        # two seeds in one fold and one in the other still compare with the baselines
        sql = f"SELECT n FROM metric WHERE {name} AND name = 'p_improvement_over_flat'"
        assert {row["n"] for row in rows(fewer, sql)} == {3}
        # over instruments: one run of ONE, two of TWO
        sql = (
            "SELECT n FROM metric WHERE scope = 'study' AND variant = 'none' AND name = 'turnover'"
        )
        assert rows(fewer, sql) == [{"n": 3}]

    def test_a_study_without_results(self, study, tmp_path):
        bare = copied(study, tmp_path, BOTH, "market.initial_capital=200000.0")
        assert bare.study_id != study.study_id
        publish_study(bare, "run")
        sql = (
            f"SELECT status, count(*) AS n FROM fold WHERE study_id = '{bare.study_id}' GROUP BY 1"
        )
        assert rows(bare, sql) == [{"status": "missing", "n": 8}]
        sql = f"SELECT count(*) AS n FROM metric WHERE starts_with(scope_id, '{bare.study_id}')"
        assert rows(bare, sql) == [{"n": 0}]

    def test_one_instrument_shows_its_seeds_at_study_scope(self, study, tmp_path):
        alone = copied(study, tmp_path, 'study.instruments=["TWO"]')
        assert alone.study_id == study.study_id
        publish_study(alone, "again")
        found = metric(alone, "study", "net_return")
        name = f"scope_id = '{study.study_id}/TWO'"
        assert found == metric(alone, "instrument", "net_return", name)

    def test_publishing_twice_changes_no_row(self, study, tmp_path):
        again = copied(study, tmp_path, BOTH)
        publish_study(again, "again")
        for table in ("metric", "fold", "equity", "trade", "data_issue"):
            sql = f"SELECT * FROM {table} ORDER BY ALL"
            assert rows(again, sql) == rows(study, sql)


def header(experiment, name, fold):
    fold_id = experiment.fold_id(name, fold)
    return FoldHeader(experiment.study_id, name, fold.key, fold_id, "evaluated")
