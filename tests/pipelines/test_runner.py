"""Both trial runners: order, failure, reports, trials begun ahead, the end."""

import os
import time
from dataclasses import replace

import pytest

from backtest.errors import BacktestError, DataError
from backtest.sections import Runtime
from opencl import devices
from pipelines.runner import ENVIRONMENT, InlineRunner, ProcessRunner, runner
from tests.pipelines import some_trials

PATIENCE = 60.0  # seconds


@pytest.fixture(scope="module")
def pool():
    with ProcessRunner(2) as opened:
        yield opened


@pytest.fixture(params=["inline", "process"])
def either(request, pool):
    if request.param == "process":
        yield pool
    else:
        with InlineRunner() as opened:
            yield opened


def test_results_come_in_the_order_of_the_specifications(either):
    assert list(either.imap(some_trials.square, range(7))) == [0, 1, 4, 9, 16, 25, 36]


def test_a_failure_arrives_as_it_was_raised_and_ends_the_iteration(either):
    results = either.imap(some_trials.fails_at_two, range(50))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(DataError, match="bar 2 is broken"):
        next(results)
    assert list(either.imap(some_trials.square, [3])) == [9]  # the runner goes on


def test_an_error_that_cannot_travel_is_told_in_words(pool):
    with pytest.raises(BacktestError, match="TwoPartError: it broke at bar 4"):
        list(pool.imap(some_trials.fails_in_two_parts, [4]))
    with InlineRunner() as inline, pytest.raises(some_trials.TwoPartError):
        list(inline.imap(some_trials.fails_in_two_parts, [4]))


def test_reports_reach_those_who_listen(either):
    heard = []
    with either.listening(heard.append):
        assert list(either.imap(some_trials.reports, [1, 2])) == [1, 2]
        deadline = time.monotonic() + PATIENCE
        while len(heard) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sorted(report.seed for report in heard) == [1, 2]
    list(either.imap(some_trials.reports, [3]))
    time.sleep(0.2)
    assert len(heard) == 2


def test_what_was_begun_ahead_runs_once(pool, tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    pool.ahead(some_trials.mark, paths)
    workers = list(pool.imap(some_trials.mark, paths))
    assert [path.read_text() for path in paths] == ["x", "x"]
    assert os.getpid() not in workers
    list(pool.imap(some_trials.mark, paths))  # handed out once: now it runs again
    assert [path.read_text() for path in paths] == ["xx", "xx"]


def test_workers_have_the_environment_they_are_given(pool):
    assert list(pool.imap(some_trials.thread_setting, ENVIRONMENT)) == list(ENVIRONMENT.values())


def test_closing_stops_what_runs_and_drops_what_waits(tmp_path):
    opened = ProcessRunner(1)
    opened.ahead(some_trials.until_stopped, [tmp_path / "first", tmp_path / "second"])
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "first").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    opened.close()
    assert (tmp_path / "first.stopped").exists()
    assert not (tmp_path / "second").exists()


def test_the_configuration_names_the_runner():
    assert isinstance(runner(Runtime(runner="inline")), InlineRunner)
    assert isinstance(runner(Runtime(runner="process", workers=3)), ProcessRunner)


@pytest.mark.parametrize("kind, wanted", [("gpu", InlineRunner), ("cpu", ProcessRunner)])
def test_a_gpu_is_shared_within_one_process(monkeypatch, kind, wanted):
    device = replace(devices.select(), kind=kind)
    monkeypatch.setattr(devices, "select", lambda name: device)
    assert isinstance(runner(Runtime()), wanted)
