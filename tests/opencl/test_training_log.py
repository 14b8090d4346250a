"""One line an epoch, and none between."""

from opencl.training_log import progress

ROW = {
    "epoch": 1,
    "loss": 2.5,
    "validation_sharpe": None,
    "steps_per_s": 12_345.6,
    "updates_per_s": 78.9,
}


def test_a_line_an_epoch():
    lines = []
    report = progress(lambda text, share: lines.append((text, share)), seed=3)
    report(10, 40, None)
    report(20, 40, ROW)
    report(40, 40, ROW | {"validation_sharpe": 1.234})
    (first, half), (last, whole) = lines
    assert (half, whole) == (0.5, 1)
    assert first.startswith("seed 3 epoch 1: loss 2.500, validation Sharpe undefined, 12,346 steps")
    assert "validation Sharpe 1.23" in last and last.endswith("0 s left")
