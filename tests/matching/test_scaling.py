"""Sinkhorn as a scaling: the same match as in logarithms, and its gradient."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from p2plane.matching.scaling import scaled_sinkhorn
from p2plane.matching.sinkhorn import log_sinkhorn


def affinities(*shape: int) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_it_is_the_logarithmic_form_with_rows_normalised_once_more():
    logits = affinities(2, 5, 7)
    match = scaled_sinkhorn(logits, 4)
    by_columns = log_sinkhorn(logits, 4)
    # The same scaling of columns up to a factor, which rows then undo.
    v = (by_columns - logits).exp()[:, :1] / (by_columns - logits).exp()[:, :1, :1]
    kernel = logits.exp() * v
    scale = (match.values / kernel)[..., :1]
    assert_close(match.values, scale * kernel)
    assert_close(match.values.sum(-1) + match.row_slack, torch.ones(2, 5, dtype=torch.float64))


def test_columns_sum_to_one_with_their_slack_in_the_end():
    match = scaled_sinkhorn(affinities(2, 5, 7), 200)
    assert_close(match.values.sum(1) + match.column_slack, torch.ones(2, 7, dtype=torch.float64))


def test_the_gradient_is_that_of_finite_differences():
    logits = affinities(2, 4, 6).requires_grad_()
    present = torch.tensor([[True, True, False, True], [True] * 4])
    assert torch.autograd.gradcheck(lambda a: tuple(scaled_sinkhorn(a, 3, source_mask=present))[:2], (logits,))


def test_absent_points_match_nothing_and_change_nothing():
    logits = affinities(1, 5, 7)
    source_mask, target_mask = torch.arange(5)[None] < 4, torch.arange(7)[None] < 5
    match = scaled_sinkhorn(logits, source_mask=source_mask, target_mask=target_mask)
    alone = scaled_sinkhorn(logits[:, :4, :5])
    assert_close(match.values[:, :4, :5], alone.values)
    assert match.values[:, 4:].abs().max() == 0
    assert match.values[:, :, 5:].abs().max() == 0


def test_enormous_affinities_stay_finite():
    logits = torch.tensor([[[1e6, -1e6], [0.0, 1e6]]], requires_grad=True)
    match = scaled_sinkhorn(logits)
    match.values.sum().backward()
    assert_close(match.values, torch.eye(2)[None], rtol=0, atol=1e-4)
    assert logits.grad.isfinite().all()
