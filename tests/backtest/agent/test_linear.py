import pytest
import torch
from torch.nn import functional

from backtest.agent import linear as module
from backtest.agent.linear import linear, linear_columns

SIZES = [(0, 5, 3), (1, 5, 3), (48, 24, 16), (256, 128, 357)]


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Products of any size go to oneDNN."""
    monkeypatch.setattr(module, "LEAST", 1)


def made(rows, inputs, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, inputs), (outputs, inputs), (outputs,)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


def close(ours, theirs):
    """Equal but for the order of sums."""
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * theirs.abs().sum().item())


@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients_are_those_of_the_library(sizes):
    x, weight, bias = made(*sizes)
    want = functional.linear(x, weight, bias)
    grad = torch.randn(want.shape)
    gradients = torch.autograd.grad(want, (x, weight, bias), grad)
    rows = linear(x, weight, bias)
    close(rows, want)
    for a, b in zip(torch.autograd.grad(rows, (x, weight, bias), grad), gradients, strict=True):
        close(a, b)
    y = x.detach().t().contiguous().requires_grad_()
    turned = linear_columns(y, weight, bias)
    close(turned, want.t())
    found = torch.autograd.grad(turned, (y, weight, bias), grad.t().contiguous())
    for a, b in zip((found[0].t(), *found[1:]), gradients, strict=True):
        close(a, b)


def test_only_wanted_gradients_are_computed():
    x, weight, bias = made(4, 5, 3)
    (alone,) = torch.autograd.grad(linear(x, weight.detach(), bias.detach()).sum(), [x])
    close(alone, weight.detach().sum(0).expand(4, 5))


def test_small_products_stay_with_the_library(monkeypatch):
    x, weight, bias = made(48, 24, 16)
    monkeypatch.setattr(module, "LEAST", 48 * 24 * 16 + 1)
    assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))


def test_without_onednn_and_in_float64_it_is_the_library(monkeypatch):
    x, weight, bias = made(48, 24, 16)
    wide = [part.double() for part in (x, weight, bias)]
    assert torch.equal(linear(*wide), functional.linear(*wide))
    monkeypatch.setattr(module, "_has_onednn", lambda: False)
    assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))
    want = torch.addmm(bias[:, None], weight, x.t())
    assert torch.equal(linear_columns(x.t(), weight, bias), want)
