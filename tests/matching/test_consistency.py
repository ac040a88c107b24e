"""Pairs that keep each other's distances."""

from __future__ import annotations

import torch

from p2plane import se3
from p2plane.matching.consistency import consistency


def half_wrong(count: int = 60, right: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of a moved cloud, of which those after the first `right` are permuted."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(1, count, 3, generator=generator)
    partners = se3.apply(se3.random(1, generator=generator), source)
    partners[:, right:] = partners[:, right:].roll(5, dims=1)
    return source, partners


def test_right_pairs_are_supported_and_wrong_ones_are_not():
    source, partners = half_wrong()
    support = consistency(source, partners, torch.ones(1, 60), torch.tensor([0.05]))
    assert support[0, :24].min() > 0.5
    assert support[0, 24:].max() < 0.1


def test_one_pair_supports_itself():
    one = torch.zeros(1, 1, 3)
    assert consistency(one, one, torch.ones(1, 1), torch.ones(1)).item() == 1.0


def test_pairs_without_weight_have_no_support_and_nothing_is_nan():
    source, partners = half_wrong()
    assert (consistency(source, partners, torch.zeros(1, 60), torch.tensor([0.05])) == 0).all()


def test_only_the_ratios_of_weights_count():
    source, partners = half_wrong()
    one, tiny = (
        consistency(source, partners, torch.full((1, 60), weight), torch.tensor([0.05])) for weight in (1.0, 1e-6)
    )
    torch.testing.assert_close(tiny, one)
