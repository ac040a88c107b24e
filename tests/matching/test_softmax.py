"""The softmax without vanishing shares is the softmax, and its gradient too."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from p2plane.matching.softmax import softmax


def logits(scale: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return (scale * torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)


def test_it_is_the_softmax_and_has_its_gradient():
    for scale in (0.1, 1.0, 30.0):
        leaf = logits(scale).requires_grad_()
        weights = logits(1.0).roll(1, -1)
        answers = [
            (soft, *torch.autograd.grad((soft * weights).sum(), leaf)) for soft in (softmax(leaf), leaf.softmax(-1))
        ]
        for found, expected in zip(*answers, strict=True):
            assert_close(found, expected, rtol=1e-9, atol=1e-18)
    assert torch.autograd.gradcheck(softmax, logits(1.0).requires_grad_())


def test_neither_shares_nor_gradients_are_subnormal():
    leaf = logits(30.0, torch.float32).requires_grad_()
    shares = softmax(leaf)
    (gradient,) = torch.autograd.grad((1e-9 * shares.square()).sum(), leaf)
    assert (leaf.softmax(-1) < torch.finfo(torch.float32).tiny).any()
    for values in (shares, gradient):
        assert ((values == 0) | (values.abs() > torch.finfo(torch.float32).tiny)).all()


def test_what_is_absent_gets_nothing():
    values = logits(1.0)
    values[..., 7] = float("-inf")
    shares = softmax(values)
    assert (shares[..., 7] == 0).all()
    assert_close(shares.sum(-1), torch.ones(3, 5, dtype=torch.float64))
