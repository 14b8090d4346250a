"""Folds, seeds and variants played together: what each is alone, in as few launches as fit."""

from dataclasses import replace

import numpy as np
import pytest

from backtest.errors import DataError
from backtest.lake import read_table
from opencl import plays
from opencl.fold_result import Opened, evaluate_fold, evaluate_folds
from opencl.plays import launches, play, written
from tests.skills import KEY as SKILLED
from tests.study import FOLDS, PARTIAL, copied

NAME, KEYS = "ONE", (*FOLDS[:2], PARTIAL)


@pytest.fixture(scope="module")
def entries(study):
    """Three folds, the last of other length, with two seeds each."""
    return [e for key in KEYS for e in Opened.of(study, NAME, key, "run").entries]


@pytest.fixture
def counted(monkeypatch):
    """Return the list of what was uploaded: bars of the tape of each rollout."""
    made = []

    class Counted(plays.Rollout):
        def __init__(self, device, tape, *rest):
            made.append(len(tape.bars))
            super().__init__(device, tape, *rest)

    monkeypatch.setattr(plays, "Rollout", Counted)
    return made


def same(a, b):
    assert [run.variant.name for run in a] == [run.variant.name for run in b]
    for run, other in zip(a, b, strict=True):
        assert run.episode.trace.tobytes() == other.episode.trace.tobytes()
        assert run.action.tobytes() == other.action.tobytes()
        assert (run.slots is None) == (other.slots is None)
        assert run.slots is None or run.slots.tobytes() == other.slots.tobytes()
        assert run.episode.metrics == other.episode.metrics
        assert run.episode.intervals == other.episode.intervals
        assert run.episode.account.equity.tobytes() == other.episode.account.equity.tobytes()


def test_all_folds_and_seeds_in_one_launch(entries, counted):
    alone = [next(play([entry])) for entry in entries]
    single = sum(counted)
    counted.clear()
    together = list(play(entries))
    assert [len(run[0].episode.trace) for run in together] == [168, 168, 168, 168, 72, 72]
    for a, b in zip(alone, together, strict=True):
        same(a, b)
    assert len(counted) == 1  # one upload of what the seeds share
    assert counted[0] <= single


def test_seeds_share_their_rows_unless_each_has_its_own_forecasts(study, entries, counted):
    assert all(v.policy.aux for e in entries for v in e.variants)
    bars = sum(len(study.fold(NAME, key).test) + 1 for key in KEYS)
    list(play(entries))
    plain = [
        replace(e, variants=[replace(v, policy=replace(v.policy, aux={})) for v in e.variants])
        for e in entries
    ]
    list(play(plain))
    assert counted == [2 * bars, bars]


def test_variants_with_banks_of_all_seeds(skilled):
    entries = Opened.of(skilled, NAME, SKILLED, "run").entries
    for a, b in zip(play(entries), [next(play([entry])) for entry in entries], strict=True):
        assert len(a) == 5
        same(a, b)


def test_what_a_launch_may_write_decides_how_many_there_are(entries, counted):
    whole = list(play(entries))
    two = written(entries[:2])
    assert written(entries) > 2 * two  # three folds of 168 steps or fewer
    assert [len(part) for part in launches(entries, two)] == [2, 2, 2]
    assert [len(part) for part in launches(entries, 1)] == [1] * 6
    counted.clear()
    for a, b in zip(whole, play(entries, two), strict=True):
        same(a, b)
    assert len(counted) == 3


def test_results_of_many_folds_are_those_of_each(study, tmp_path):
    again, single = copied(study, tmp_path / "a"), copied(study, tmp_path / "b")
    found = list(evaluate_folds(again, NAME, KEYS, "together"))
    assert [one.manifest.header.fold_key for one in found] == list(KEYS)
    for key, one in zip(KEYS, found, strict=True):
        other = evaluate_fold(single, NAME, key, "together").manifest
        for name in one.manifest.files:
            rows, wanted = (read_table(m.path(name)) for m in (one.manifest, other))
            assert rows.equals(wanted), (key, name)
    assert np.unique([one.manifest.files["equity"].rows for one in found]).size == 2


def test_a_fold_without_a_policy_is_named(study):
    with pytest.raises(DataError, match=FOLDS[2]):
        list(evaluate_folds(study, NAME, FOLDS, "run"))
