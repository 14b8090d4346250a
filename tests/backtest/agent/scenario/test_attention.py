import math

import pytest
import torch

from backtest.agent.scenario.attention import Attention, Tokens, best


def made(seed=0, groups=3, scenarios=2, horizon=4, latent=6, batch=5):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(groups, scenarios, latent, batch, dtype=torch.float64, generator=generator),
        torch.randn(scenarios, horizon, latent, batch, dtype=torch.float64, generator=generator),
    )


def plain(query, tokens, k):
    """The same with one matrix product after another, and its gradient by autograd."""
    q, t = query.permute(3, 1, 0, 2), tokens.permute(3, 0, 1, 2)  # [B, S, G, L], [B, S, H, L]
    score = q @ t.transpose(2, 3) / math.sqrt(q.shape[-1])
    if k:
        bound = score.sort(dim=-1, descending=True).values[..., k - 1 : k]
        score = score.masked_fill(score < bound, -torch.inf)
    return (score.softmax(-1) @ t).permute(2, 1, 3, 0)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_values_and_gradients_are_those_of_matrix_products(k):
    query, tokens = (x.requires_grad_() for x in made())
    weight = torch.randn(query.shape, dtype=torch.float64)
    ours, theirs = Attention.apply(query, tokens, k), plain(query, tokens, k)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad(ours, [query, tokens], weight),
        torch.autograd.grad(theirs, [query, tokens], weight),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_gradients_are_finite_differences():
    query, tokens = (x.requires_grad_() for x in made(batch=2))
    assert torch.autograd.gradcheck(lambda q, t: Attention.apply(q, t, 2), (query, tokens))


def test_tokens_are_the_norm_of_the_library():
    _, step = made()
    log_u = torch.randn(2, 4, 1, 5, dtype=torch.float64)
    weight, bias, scale = torch.rand(3, 6, dtype=torch.float64)
    shift = torch.rand(4, 6, dtype=torch.float64)
    inputs = [part.clone().requires_grad_() for part in (step, weight, bias, scale, shift)]

    def ours(step, weight, bias, scale, shift):
        return Tokens.apply(step, log_u, weight, bias, scale, shift, 1e-5)

    x = step + bias[:, None] + log_u * weight[:, None]
    theirs = torch.nn.functional.layer_norm(x.movedim(2, -1), (6,), scale, eps=1e-5)
    torch.testing.assert_close(ours(*inputs), theirs.movedim(-1, 2) + shift[:, :, None])
    assert torch.autograd.gradcheck(ours, inputs)


def test_all_tokens_are_kept_by_zero_and_by_their_number():
    query, tokens = made()
    assert torch.equal(Attention.apply(query, tokens, 0), Attention.apply(query, tokens, 4))


def test_the_first_of_equal_scores_is_kept():
    score = torch.tensor([2.0, 3.0, 3.0, 3.0]).view(1, 1, 4, 1)
    assert best(score, 2).flatten().tolist() == [-torch.inf, 3, 3, -torch.inf]
    assert best(score, 4) is score
