"""What a fold may read: its windows' files, its train rows, nothing at or after a stop."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.data.bars import read_bars, write_bars
from backtest.data.ingest import ingest
from backtest.errors import DataError
from backtest.experiment import LEAD, Experiment, FoldMarket
from backtest.features.state import RECENT
from backtest.features.table import compute, feature_hash
from backtest.lake import Lake
from tests.study import BARS, FOLDS, PARTIAL, configuration, copied, opened

NAME = "ONE"


@pytest.fixture(scope="module")
def table(study):
    return compute(study.bars(NAME))


@pytest.fixture(scope="module")
def market(study, table):
    fold = study.fold(NAME, FOLDS[0])
    return FoldMarket.fit(study.config, study.instrument(NAME), fold, table)


def same(left, right):
    """Whether two cuts hold the same tape and states, bit for bit."""
    for a, b in zip(left, right, strict=True):
        if hasattr(a, "bars"):
            assert a.start == b.start
            assert a.params.tobytes() == b.params.tobytes()
            a, b = a.bars, b.bars
        if a.tobytes() != b.tobytes():
            return False
    return True


def poisoned(table, rows):
    """The table with other values in some rows, bool[n]."""
    changed = {}
    for name in ("open", "high", "low", "close", "sigma", "volume", "market", "slow"):
        column = getattr(table, name).copy()
        column[rows] = column[rows] * 10 + 1
        changed[name] = column
    return replace(table, roll=table.roll ^ rows, **changed)


class TestFiles:
    def test_a_file_holds_its_window_and_the_lead_of_its_state(self, study):
        window = study.windows(NAME)[FOLDS[0]]
        read = study.read_windows(NAME, [FOLDS[0]])
        assert (read.first_bar, read.stop) == (window.start - LEAD, window.stop)
        assert LEAD == RECENT + 1  # the first test decision is one bar before the window

    def test_joined_windows_are_the_whole_history_cut(self, study, table):
        keys = study.history_keys(NAME, FOLDS[1])
        read = study.read_windows(NAME, keys)
        assert keys == ["2000-02-07", "2000-02-14", "2000-02-21"]
        bounds = study.windows(NAME)
        assert read.first_bar == bounds[keys[0]].start - LEAD
        assert read.stop == bounds[keys[-1]].stop == study.fold(NAME, FOLDS[1]).test.start
        part = table.slice(read.first_bar, read.stop)
        for name in ("open", "close", "sigma", "market", "slow", "time"):
            np.testing.assert_array_equal(getattr(read, name), getattr(part, name))

    def test_a_test_window_needs_its_own_file_alone(self, study, table, market):
        own = study.read_windows(NAME, [FOLDS[0]])
        assert same(market.test(own), market.test(table))

    def test_train_and_validation_need_the_files_of_the_history(self, study, table, market):
        history = study.read_windows(NAME, study.history_keys(NAME, FOLDS[0]))
        fitted = FoldMarket.fit(market.config, market.instrument, market.fold, history)
        assert fitted.base == market.base
        np.testing.assert_array_equal(fitted.scaler.center, market.scaler.center)
        assert same(market.train(history), market.train(table))
        assert same(market.validation(history), market.validation(table))

    def test_a_skipped_fold_is_refused_by_name(self, study):
        for key, reason in (("2000-01-31", "too little history"), ("2000-05-01", "no bars")):
            with pytest.raises(DataError, match=f"fold {key} of ONE is skipped .*{reason}"):
                study.history_keys(NAME, key)

    def test_a_window_without_a_file(self, study, tmp_path):
        bare = Experiment(study.config, Lake(tmp_path))
        ingest(NAME, bare.instrument(NAME), tmp_path)
        with pytest.raises(DataError, match="no such feature file"):
            bare.read_windows(NAME, [FOLDS[0]])
        with pytest.raises(DataError, match="no bars in window 1999-01-04"):
            bare.write_window(NAME, "1999-01-04")

    def test_bars_that_were_not_ingested(self, study, tmp_path):
        with pytest.raises(DataError, match="skillwalk ingest"):
            Experiment(study.config, Lake(tmp_path)).bars(NAME)


class TestNewBars:
    """What happens to files and identities when the history changes."""

    def test_later_bars_leave_files_and_identities_as_they_are(self, study, tmp_path):
        longer = copied(study, tmp_path)
        settings = configuration(bars=BARS + 150).instrument_settings(NAME)
        before = study.read_windows(NAME, [FOLDS[0]])
        ingest(NAME, settings, tmp_path)
        assert len(longer.bars(NAME)) == BARS + 150
        for key in FOLDS:
            fold = longer.fold(NAME, key)
            assert longer.fold_id(NAME, fold) == study.fold_id(NAME, study.fold(NAME, key))
        # nothing was written again, and everything can still be read together
        keys = longer.history_keys(NAME, FOLDS[2])
        assert longer.read_windows(NAME, keys).stop == longer.fold(NAME, FOLDS[2]).test.start
        written = longer.write_window(NAME, FOLDS[0])
        assert feature_hash(written) == feature_hash(before)
        # the window that grew has a file of too few bars
        with pytest.raises(DataError, match="computed from other bars"):
            longer.read_windows(NAME, [PARTIAL])
        grown = longer.fold_id(NAME, longer.fold(NAME, PARTIAL))
        assert grown != study.fold_id(NAME, study.fold(NAME, PARTIAL))

    def test_a_revised_past_makes_files_stale(self, study, tmp_path):
        revised = copied(study, tmp_path)
        path = revised.lake.bars(NAME)
        bars = read_bars(path)
        volume = bars.volume.copy()
        volume[100] += 1  # long before the windows that are read
        write_bars(replace(bars, volume=volume), path)
        with pytest.raises(DataError, match="computed from other bars"):
            revised.read_windows(NAME, [FOLDS[0]])

    def test_a_window_without_bars_is_passed_over(self, tmp_path):
        holed = opened(tmp_path)
        bars = read_bars(holed.lake.bars(NAME))
        window = holed.windows(NAME)["2000-02-14"]
        kept = np.ones(len(bars), bool)
        kept[window.start : window.stop] = False
        columns = ("time", "open", "high", "low", "close", "volume", "roll", "session")
        part = replace(bars, **{name: getattr(bars, name)[kept] for name in columns})
        write_bars(part, holed.lake.bars(NAME))
        windows = holed.windows(NAME)
        assert len(windows["2000-02-14"]) == 0
        for key, found in windows.items():
            if len(found):
                holed.write_window(NAME, key)
        keys = ["2000-02-07", "2000-02-14", "2000-02-21"]
        read = holed.read_windows(NAME, keys)
        assert read.stop == windows["2000-02-21"].stop
        with pytest.raises(DataError, match="no bars in window 2000-02-14"):
            holed.write_window(NAME, "2000-02-14")


class TestFoldMarket:
    def test_fits_on_train_rows_alone(self, table, market):
        train = market.fold.train
        bars = table["bar"]
        others = poisoned(table, (bars < train.start) | (bars >= train.stop))
        again = FoldMarket.fit(market.config, market.instrument, market.fold, others)
        assert again.base == market.base == table.close[train.start]
        np.testing.assert_array_equal(again.scaler.center, market.scaler.center)
        np.testing.assert_array_equal(again.scaler.scale, market.scaler.scale)

    @pytest.mark.parametrize("name", ["train", "validation", "test"])
    def test_a_cut_reads_nothing_from_its_stop_on(self, table, market, name):
        window = getattr(market.fold, name)
        later = poisoned(table, table["bar"] >= window.stop)
        cut = getattr(market, name)
        tape, state = cut(table)
        # train decides from its first bar, the others from the bar before theirs
        first = window.start - (name != "train")
        assert (tape.start, tape.stop) == (first, window.stop)
        assert len(state) == len(tape.bars)
        assert same(cut(later), (tape, state))
        assert not same(cut(poisoned(table, table["bar"] == window.stop - 1)), (tape, state))

    @pytest.mark.parametrize("name", ["train", "validation", "test"])
    def test_a_cut_reads_the_lead_of_its_state_and_no_more(self, table, market, name):
        cut = getattr(market, name)
        tape, state = cut(table)
        start = tape.start - RECENT
        assert same(cut(poisoned(table, table["bar"] < start)), (tape, state))
        # a bar's own difference needs the close before it
        changed = cut(poisoned(table, table["bar"] == start))
        assert not same(changed, (tape, state))

    def test_every_use_of_a_fold_has_one_base(self, table, market):
        for cut in (market.train, market.validation, market.test):
            tape, _ = cut(table)
            assert float(tape.params["base"]) == np.float32(market.base)
            closes = table.close[tape.start : tape.stop] - market.base
            np.testing.assert_array_equal(tape.bars["close"], closes.astype(np.float32))

    def test_a_table_without_the_lead_is_refused(self, table, market):
        short = table.slice(market.fold.test.start - RECENT, market.fold.test.stop)
        with pytest.raises(DataError, match="needs bars from"):
            market.test(short)
