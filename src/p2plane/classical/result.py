"""The `Alignment` that ICP returns for a batch of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from p2plane.classical.problems import batched, of_partners, problem_of
from p2plane.classical.rounds import Outcome, Rules
from p2plane.classical.scales import Surface
from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment, Round
from p2plane.solve.problem import Problem


class End(NamedTuple):
    """The clouds of a pair as the last scale saw them, and where it ended."""

    source: Surface
    target: Surface
    outcome: Outcome


def alignment_of(
    ends: list[End], batch_shape: torch.Size, like: Tensor, rules: Rules, normals_estimated: bool
) -> Alignment:
    """The alignment of a batch, with the pairs of the last round, in the dtype and on the device of a tensor."""
    problem = batched([_problem(end, rules) for end in ends], batch_shape)
    T = torch.from_numpy(np.stack([end.outcome.T for end in ends])).to(like.device)
    poses = se3.homogeneous(T).to(like.dtype)
    last = Round(
        poses, problem.pairs.source, problem.pairs.target, _weights(problem, T).to(like.dtype), extras=_rows(ends)
    )
    return Alignment(
        poses.reshape(*batch_shape, 4, 4),
        torch.tensor([end.outcome.converged for end in ends], device=like.device).reshape(batch_shape),
        torch.tensor([end.outcome.iterations for end in ends], device=like.device).reshape(batch_shape),
        T,
        problem,
        rules.settings,
        (last,),
        normals_estimated,
    )


def _problem(end: End, rules: Rules) -> Problem:
    source, target, outcome = end
    return problem_of(source.points, target.points, source.normals, target.normals, outcome.matches, rules.distance)


def _weights(problem: Problem, T: Tensor) -> Tensor:
    """(B, K) what each pair counts at the pose, zero for those that do not."""
    if problem.kernel is None:
        return problem.weights()
    weights = problem.linearized(T).weights
    assert weights is not None
    return weights.detach()


def _rows(ends: list[End]) -> dict[str, Tensor]:
    """(B, K) rows of the partners in the caller's clouds, -1 where there are none."""
    theirs = []
    for _, target, outcome in ends:
        partners, kept = (torch.from_numpy(each).to(target.rows.device) for each in outcome.matches)
        theirs.append(of_partners(target.rows, partners).where(kept, -1))
    ours = [end.source.rows for end in ends]
    return {"source_rows": _padded(ours), "target_rows": _padded(theirs)}


def _padded(rows: list[Tensor]) -> Tensor:
    """(B, K) with -1 at the ends of the shorter ones."""
    return rows[0][None] if len(rows) == 1 else pad_sequence(rows, batch_first=True, padding_value=-1)
