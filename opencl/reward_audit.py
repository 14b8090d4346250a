"""The reward audit of a study on the device: Gaussian bars, and the train windows of an instrument.

What is run and required is `backtest.audit`; here are the kernel, the bars and the rows' way home.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backtest import identity
from backtest.audit.report import Audit
from backtest.audit.run import audit_bars, audit_synthetic
from backtest.audit.scores import Simulate
from backtest.audit.windows import at_notional
from backtest.calendar_folds import calendar_folds
from backtest.data.bars import Bars
from backtest.experiment import Experiment
from backtest.features.table import compute
from backtest.manifest import PartHeader
from backtest.market.layout import Array
from backtest.market.records import bar_records
from backtest.market.tape import Tape, market_params
from backtest.splits import Window
from backtest.store import record_study, write_part
from opencl.devices import select
from opencl.simulate import simulator


def synthetic_audit(experiment: Experiment, instrument: str) -> Audit:
    """Audit the reward on Gaussian bars; the rows carry the instrument's name."""
    return audit_synthetic(experiment.config, kernel(experiment), instrument)


def bars_audit(
    experiment: Experiment, instrument: str, bars: Bars, notional: float | None = None
) -> Audit:
    """Audit the reward on bars, costs and size of an instrument.

    Args:
        experiment: the study.
        instrument: its name.
        bars: its bars; train windows are cut from them.
        notional: a full position over the initial capital; None: as configured.

    Raises:
        ConfigError: no fold fits, or a size that cannot be traded.
        DataError: no train window holds a step.
    """
    tape, windows = train_tape(experiment, instrument, bars)
    if notional is not None:
        tape = at_notional(tape, windows, notional)
    return audit_bars(tape, windows, kernel(experiment), instrument, experiment.config.audit)


def train_tape(
    experiment: Experiment, instrument: str, bars: Bars
) -> tuple[Tape, tuple[Window, ...]]:
    """Return the bars that hold every train window, and the windows; no later bar is read."""
    config = experiment.config
    folds = calendar_folds(
        config.folds, bars.time, bars.session, experiment.always_open(instrument)
    )
    windows = tuple(fold.train for fold in folds if fold.status != "skipped")
    start, stop = windows[0].start, max(window.stop for window in windows)
    table = compute(bars.prefix(stop), config.features.adx_seed).slice(start, stop)
    base = float(table.close[0])
    params = market_params(config, experiment.instrument(instrument), base)
    records = bar_records(table, base, table.volume_known)
    return Tape(start, records, params, np.zeros(len(table), np.float32)), windows


def kernel(experiment: Experiment) -> Simulate:
    """Return the simulation of target positions on the study's device."""
    simulation = simulator(select(experiment.config.runtime.device))

    def simulate(tape: Tape, start: Array, targets: Array) -> Array:
        _, trace = simulation.targets(tape, start, targets)
        return trace

    return simulate


def write_audits(
    experiment: Experiment, instrument: str, audits: Sequence[Audit], run_id: str
) -> None:
    """Write the rows of table reward_audit; `backtest.publication` brings them into the store."""
    study_id, lake = experiment.study_id, experiment.lake
    record_study(
        lake,
        study_id,
        run_id,
        identity.study_settings(experiment.config),
        identity.provenance(),
    )
    rows = [row for audit in audits for row in audit.rows]
    write_part(lake, PartHeader("audit", run_id, study_id, instrument), {"reward_audit": rows})
