"""The summaries and steps of ICP's rounds are those of the solver."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Cauchy, se3
from p2plane.classical.forms import in_units, moments_of
from p2plane.classical.problems import DISTANCES, Distance, Matches, Sight, problem_of
from p2plane.classical.steps import descend, gauss_newton_step, stepped
from p2plane.solve.newton import Limits, accumulate, newton
from p2plane.solve.problem import Problem
from p2plane.solve.quadratic import Frame, Quadratic, summarize
from p2plane.solve.robust import RobustKernel
from p2plane.solve.tangent import Chart
from tests.clouds import matched_pair

SCALE = 0.7


def channels(rows: Tensor) -> np.ndarray:
    return np.ascontiguousarray(rows.numpy().T)


def round_of(
    name: str, kernel: RobustKernel | None = None, points: int = 50, noise: float = 0.05, seed: int = 1
) -> tuple[np.ndarray, Problem, Tensor]:
    """The form of a round, the problem that it is the form of, and the pose (3, 4)."""
    generator = torch.Generator().manual_seed(3)
    pair = matched_pair(points=points, noise=noise, seed=seed)
    T = se3.exp(0.05 * torch.randn(6, generator=generator, dtype=torch.float64)) @ pair.T_target_source
    source_normals = se3.rotate(se3.inverse(pair.T_target_source), pair.normals)
    source_normals = source_normals + 0.2 * torch.randn(points, 3, generator=generator, dtype=torch.float64)
    source_normals = -source_normals / source_normals.norm(dim=-1, keepdim=True)
    source_normals[3] = 0
    partners = torch.randperm(points, generator=generator)
    matches = Matches(partners.numpy(), np.arange(points) % 5 != 0)
    target, normals = torch.empty_like(pair.target), torch.empty_like(pair.normals)
    target[partners], normals[partners] = pair.target, pair.normals
    distance = Distance(name, kernel)
    problem = problem_of(pair.source, target, source_normals, normals, matches, distance)
    source, moved, partner = map(channels, (pair.source, se3.apply(T, pair.source), pair.target))
    sight = Sight(moments_of(source), moved, partner, matches.kept, channels(source_normals), channels(pair.normals))
    return in_units(distance.form(sight, T[:3].numpy()), SCALE), problem, T[:3]


def summary(problem: Problem, T: Tensor) -> Quadratic:
    origin = torch.zeros(1, 3, 1, dtype=torch.float64)
    frame = Frame(origin, origin, torch.full((1, 1, 1), SCALE, dtype=torch.float64))
    return summarize(problem.linearized(T[None]), frame)


@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("kernel", [None, Cauchy(0.1)])
def test_a_form_is_the_summary_of_the_solver(name: str, kernel: RobustKernel | None) -> None:
    form, problem, T = round_of(name, kernel)
    assert_close(torch.from_numpy(form), summary(problem, T).matrix[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", DISTANCES)
def test_many_points_are_summed_up_block_by_block(name: str) -> None:
    form, problem, T = round_of(name, points=20_000)
    assert_close(torch.from_numpy(form), summary(problem, T).matrix[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_step_is_the_first_one_of_the_solver(name: str) -> None:
    form, problem, T = round_of(name)
    T_local = torch.cat([T[:, :3], T[:, 3:] / SCALE], dim=-1)
    step = gauss_newton_step(form, T_local.numpy(), 1e-6)
    assert step is not None
    found = torch.from_numpy(stepped(T_local.numpy(), step))
    expected = accumulate(summary(problem, T), T_local[None], Chart(), Limits(1, 1e-9, 1e-6)).T[0]
    assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_steps_lead_to_the_minimum_of_the_solver() -> None:
    form, problem, T = round_of("plane")
    T_local = torch.cat([T[:, :3], T[:, 3:] / SCALE], dim=-1)
    expected = newton(summary(problem, T), T_local[None], Chart(), Limits(50, 1e-9, 1e-6)).T[0]
    here = T_local.numpy()
    for _ in range(30):
        step = gauss_newton_step(form, here, 1e-6)
        assert step is not None
        here = stepped(here, step)
    assert_close(torch.from_numpy(here), expected, rtol=1e-8, atol=1e-8)
    assert_close(here[:, :3] @ here[:, :3].T, np.eye(3), rtol=0, atol=1e-14)


def test_steps_that_overshoot_are_halved_and_lead_to_the_minimum_of_the_solver() -> None:
    form, problem, T = round_of("plane", noise=0.2, seed=10)
    T_local = torch.cat([T[:, :3], T[:, 3:] / SCALE], dim=-1).numpy()
    step = gauss_newton_step(form, T_local, 1e-6)
    assert step is not None
    assert energy(form, stepped(T_local, step)) > energy(form, T_local)
    here = descend(form, T_local, 1e-6)
    assert here is not None
    expected = newton(summary(problem, T), torch.from_numpy(T_local)[None], Chart(), Limits(50, 1e-9, 1e-6)).T[0]
    assert_close(torch.from_numpy(here), expected, rtol=0, atol=0.01)
    assert energy(form, here) < energy(form, T_local)


def energy(form: np.ndarray, T: np.ndarray) -> float:
    entries = np.append(T.ravel(), 1)
    return float(entries @ form @ entries)


def test_an_open_direction_makes_no_step() -> None:
    form = np.zeros((13, 13))
    form[11, 11] = 1.0  # heights over one plane at one point
    assert gauss_newton_step(form, np.eye(4)[:3], 1e-6) is None
