"""Matches: soft, hard and doubly stochastic, and what they point to."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane.matching.hard import Picks, hard_match
from p2plane.matching.keypoints import strongest, take
from p2plane.matching.pointers import leading_eigenvector, soft_normal_tensors, soft_points
from p2plane.matching.sinkhorn import log_sinkhorn, sinkhorn_match_


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(random(*shape, seed=seed), dim=-1)


def test_a_one_hot_match_points_to_one_point_and_its_normal():
    target, normals = random(1, 5, 3), unit(1, 5, 3, seed=1)
    match = torch.eye(5, dtype=torch.float64)[None, [3, 0]]
    assert_close(soft_points(match, target), target[:, [3, 0]])
    n = normals[:, [3, 0]]
    assert_close(soft_normal_tensors(match, normals), n[..., :, None] * n[..., None, :])


def test_flipped_normals_give_the_same_tensors():
    match, normals = random(2, 4, 6).softmax(-1), unit(2, 6, 3)
    signs = torch.tensor([1.0, -1, 1, -1, -1, 1], dtype=torch.float64)[:, None]
    assert_close(soft_normal_tensors(match, signs * normals), soft_normal_tensors(match, normals))


def test_the_leading_eigenvector_is_the_normal_of_a_pure_tensor_and_its_gradient_is_finite():
    for n in torch.eye(3, dtype=torch.float64):
        tensor = (n[:, None] * n[None]).requires_grad_()
        vector = leading_eigenvector(tensor)
        assert_close(vector.abs(), n)
        (vector * random(3)).sum().backward()
        assert tensor.grad.isfinite().all()


def test_the_leading_eigenvector_has_the_gradient_of_finite_differences():
    tensors = random(4, 3, 3)
    tensors = (tensors @ tensors.mT).requires_grad_()

    def outer(tensors):
        vector = leading_eigenvector((tensors + tensors.mT) / 2)
        return vector[..., :, None] * vector[..., None, :]  # whose sign is not arbitrary

    assert torch.autograd.gradcheck(outer, tensors)


def test_where_the_largest_eigenvalues_meet_the_gradient_is_bounded():
    tensor = torch.diag(torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)).requires_grad_()
    (leading_eigenvector(tensor) * random(3)).sum().backward()
    assert tensor.grad.isfinite().all()
    assert tensor.grad.norm() < 1e4


def test_a_hard_match_picks_the_largest_and_has_the_gradient_of_the_soft_one():
    logits = random(2, 3, 5).requires_grad_()
    match = hard_match(logits, 0.5)
    assert torch.equal(match.detach().round(), torch.nn.functional.one_hot(logits.argmax(-1), 5).double())
    G = random(2, 3, 5, seed=1)
    (gradient,) = torch.autograd.grad(match, logits, G)
    (expected,) = torch.autograd.grad((logits / 0.5).softmax(-1), logits, G)
    assert_close(gradient, expected)


def test_a_sampled_match_picks_with_the_probabilities_of_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).expand(1, 20000, 3)
    match = hard_match(logits, sample=True, generator=torch.Generator().manual_seed(0))
    assert_close(match.mean(1)[0], logits[0, 0].softmax(-1), rtol=0, atol=0.02)
    again = hard_match(logits, sample=True, generator=torch.Generator().manual_seed(0))
    assert torch.equal(match, again)


def test_absent_targets_are_never_picked():
    logits = random(1, 50, 4)
    logits[..., 2] = float("-inf")
    match = hard_match(logits, sample=True, generator=torch.Generator().manual_seed(1))
    assert match[..., 2].abs().max() == 0


def test_picks_are_the_hard_match_that_is_not_written_out():
    logits, values = random(3, 6, 5).requires_grad_(), random(3, 5, 4, seed=1).requires_grad_()
    logits.data[1, :, 2] = float("-inf")
    G = random(3, 6, 4, seed=2)
    answers = []
    for match in (Picks(logits.exp()), hard_match(logits)):
        picked = match @ values
        answers.append((picked, *torch.autograd.grad(picked, (logits, values), G)))
    for ours, written_out in zip(*answers, strict=True):
        assert_close(ours, written_out)
    with torch.no_grad():
        assert torch.equal(Picks(logits.exp()) @ values, answers[0][0])


def test_sampled_picks_and_their_gradients_are_distributed_as_those_of_the_sampled_hard_match():
    """For each pick apart, as the noise of the gradient depends on it: the mean and the spread over many rows."""
    rows = 40000
    row = torch.tensor([0.5, float("-inf"), 1.5, 0.0], dtype=torch.float64)
    values, G = random(1, 4, 3, seed=1), random(1, 1, 3, seed=2).expand(1, rows, 3)
    answers = []
    for pick in (lambda logits, noise: Picks(3 * logits.exp(), True, noise), _sampled):
        logits = row.repeat(1, rows, 1).requires_grad_()
        picked = pick(logits, torch.Generator().manual_seed(5)) @ values
        (gradient,) = torch.autograd.grad(picked, logits, G)
        indices = (picked[0, :, None] - values[0]).abs().sum(-1).argmin(-1)
        answers.append((indices, gradient[0]))
    (ours, by_ours), (written_out, by_written_out) = answers
    for index in range(4):
        share, expected = (ours == index).double().mean(), row.softmax(-1)[index]
        assert_close(share, expected, rtol=0, atol=0.01)
        if index == 1:
            assert share == 0  # absent
            continue
        for moment in (1, 2):
            mine, theirs = (by[of == index].pow(moment) for of, by in ((ours, by_ours), (written_out, by_written_out)))
            error = (mine.var(0) / len(mine) + theirs.var(0) / len(theirs)).sqrt()
            assert ((mine.mean(0) - theirs.mean(0)).abs() <= 4 * error + 1e-12).all()


def _sampled(logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return hard_match(logits, sample=True, generator=generator)


def test_the_generator_decides_what_is_picked_and_its_gradient():
    match, values = random(2, 30, 5).exp().requires_grad_(), random(2, 5, 3, seed=1)

    def answer(seed: int) -> torch.Tensor:
        picked = Picks(match, True, torch.Generator().manual_seed(seed)) @ values
        (gradient,) = torch.autograd.grad(picked.square().sum(), match)
        return torch.cat([picked.flatten(), gradient.flatten()])

    assert torch.equal(answer(1), answer(1))
    assert not torch.equal(answer(1), answer(2))


@pytest.mark.parametrize("sample", [False, True])
def test_picks_stand_rows_without_a_partner(sample):
    match, values = torch.zeros(1, 2, 3, requires_grad=True), torch.ones(1, 3, 4, requires_grad=True)
    (Picks(match, sample, torch.Generator().manual_seed(5)) @ values).sum().backward()
    assert match.grad.abs().max() == 0
    assert values.grad.isfinite().all()


def plain_sinkhorn(log_affinity: torch.Tensor, rounds: int) -> torch.Tensor:
    """With the slack row and column written out."""
    padded = torch.nn.functional.pad(log_affinity, (0, 1, 0, 1))
    for _ in range(rounds):
        rows = padded[:, :-1] - padded[:, :-1].logsumexp(2, keepdim=True)
        padded = torch.cat([rows, padded[:, -1:]], dim=1)
        columns = padded[:, :, :-1] - padded[:, :, :-1].logsumexp(1, keepdim=True)
        padded = torch.cat([columns, padded[:, :, -1:]], dim=2)
    return padded[:, :-1, :-1]


def by_logarithms(log_affinity: torch.Tensor, *arguments, **options) -> torch.Tensor:
    return log_sinkhorn(log_affinity, *arguments, **options).exp()


def by_products(log_affinity: torch.Tensor, *arguments, **options) -> torch.Tensor:
    return sinkhorn_match_(log_affinity.clone(), *arguments, **options)


both_sinkhorns = pytest.mark.parametrize("sinkhorn", [by_logarithms, by_products])


@both_sinkhorns
@pytest.mark.parametrize("rounds", [1, 5])
def test_sinkhorn_with_slack_is_the_one_written_out(rounds, sinkhorn):
    log_affinity = 3 * random(2, 6, 4)
    assert_close(sinkhorn(log_affinity, rounds), plain_sinkhorn(log_affinity, rounds).exp())


def test_sinkhorn_without_slack_becomes_doubly_stochastic():
    match = log_sinkhorn(random(1, 5, 5), 200, slack=False).exp()
    assert_close(match.sum(1), torch.ones(1, 5, dtype=torch.float64))
    assert_close(match.sum(2), torch.ones(1, 5, dtype=torch.float64), rtol=0, atol=1e-6)


@both_sinkhorns
def test_sinkhorn_leaves_room_for_points_without_a_partner(sinkhorn):
    match = sinkhorn(torch.full((1, 3, 3), -20.0, dtype=torch.float64))
    assert match.max() < 1e-6


@both_sinkhorns
def test_sinkhorn_does_not_see_absent_points(sinkhorn):
    log_affinity = random(1, 4, 5)
    padded = torch.nn.functional.pad(log_affinity, (0, 2, 0, 3), value=9.0).requires_grad_()
    masks = {
        "source_mask": torch.tensor([[True] * 4 + [False] * 3]),
        "target_mask": torch.tensor([[True] * 5 + [False] * 2]),
    }
    match = sinkhorn(padded, **masks)
    assert_close(match[:, :4, :5], sinkhorn(log_affinity))
    assert match[:, 4:].abs().max() == 0
    match.square().sum().backward()
    assert padded.grad.isfinite().all()


@both_sinkhorns
def test_sinkhorn_has_the_gradient_of_finite_differences(sinkhorn):
    assert torch.autograd.gradcheck(sinkhorn, random(1, 3, 4).requires_grad_())


@both_sinkhorns
@pytest.mark.parametrize("rounds", [3, 300])
def test_sinkhorn_stands_enormous_affinities_and_many_rounds(rounds, sinkhorn):
    """Two rows that want one column: its scale halves in every round."""
    log_affinity = torch.tensor([[[1e3, -1e3, 0.0], [1e3, -90.0, -1e3]]], requires_grad=True)
    match = sinkhorn(log_affinity, rounds)
    assert_close(match.double(), plain_sinkhorn(log_affinity.double(), rounds).exp(), rtol=1e-3, atol=1e-30)
    match.square().sum().backward()
    assert log_affinity.grad.isfinite().all()


@both_sinkhorns
def test_sinkhorn_has_the_gradient_of_the_one_written_out_where_affinities_differ_much(sinkhorn):
    log_affinity, weights = 30 * random(2, 7, 5), random(2, 7, 5, seed=1)
    answers = []
    for each in (sinkhorn, lambda *arguments: plain_sinkhorn(*arguments).exp()):
        leaf = log_affinity.clone().requires_grad_()
        (each(leaf, 4) * weights).sum().backward()
        answers.append(leaf.grad)
    assert_close(*answers)


def test_sinkhorn_by_products_takes_no_memory_of_its_own():
    log_affinity = random(1, 3, 4)
    assert sinkhorn_match_(log_affinity).data_ptr() == log_affinity.data_ptr()


def test_the_strongest_are_those_with_the_largest_norms():
    features = random(2, 10, 4)
    rows = strongest(features, 3)
    expected = features.norm(dim=-1).topk(3).indices
    assert torch.equal(rows.sort().values, expected.sort().values)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[0, expected[0, 0]] = False
    assert expected[0, 0] not in strongest(features, 3, mask)[0]
    assert_close(take(features, rows), torch.stack([features[b, rows[b]] for b in range(2)]))
    assert strongest(features, 99).shape == (2, 10)
