"""The search in sums and products alone finds what the search with LAPACK finds."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import point_to_plane, point_to_point, se3, so3
from p2plane.solve import basic
from tests.clouds import matched_pair
from tests.solve import test_degenerate as shapes


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_inverse_is_lapacks_and_tells_where_there_is_none():
    factors = normal(40, 6, 9)
    matrix = factors @ factors.mT / 9
    matrix[20:, 5] = matrix[20:, :, 5] = 0
    matrix[30:, 5, 5] = -1
    inverse, info = basic.inverse(matrix)
    assert (info == 0).tolist() == [True] * 20 + [False] * 20
    assert_close(inverse[:20], torch.linalg.inv(matrix[:20]), rtol=1e-9, atol=1e-9)
    assert inverse.isfinite().all()


@pytest.mark.parametrize("rank", [0, 1, 4, 6])
def test_the_projector_is_that_of_the_eigenvectors(rank):
    factors = normal(20, 6, rank)
    matrix = factors @ factors.mT
    values, vectors = torch.linalg.eigh(matrix)
    expected = (vectors * (values >= 1e-6)[:, None]) @ vectors.mT
    assert_close(basic.projector_above(1e-6, matrix), expected, rtol=0, atol=1e-9)


def test_the_nearest_rotation_is_that_of_the_singular_value_decomposition_for_reflections_too():
    matrix = normal(100, 3, 3)
    assert (torch.linalg.det(matrix) < 0).any()
    assert_close(basic.nearest_rotation(matrix), so3.project(matrix), rtol=0, atol=1e-9)
    nothing = basic.nearest_rotation(torch.zeros(1, 3, 3, dtype=torch.float64))
    assert_close(nothing.mT @ nothing, torch.eye(3, dtype=torch.float64)[None])


@pytest.mark.parametrize("solver", ["newton", "accumulate"])
def test_poses_are_the_same(solver):
    pair = matched_pair(6, points=64, noise=0.01)
    initial = None if solver == "newton" else se3.exp(0.1 * normal(6, 6)) @ pair.T_target_source
    plain = point_to_plane(*pair[:4], solver=solver, initial=initial)
    with basic.basic_operations():
        other = point_to_plane(*pair[:4], solver=solver, initial=initial)
        points = point_to_point(pair.source, pair.target, pair.weights)
    assert_close(other.T_target_source, plain.T_target_source, rtol=0, atol=1e-8)
    assert torch.equal(other.converged, plain.converged)
    expected = point_to_point(pair.source, pair.target, pair.weights).T_target_source
    assert_close(points.T_target_source, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", ["plane", "line", "sphere", "cylinder", "capped_cylinder", "coincident"])
def test_open_directions_stay_where_they_stay_otherwise(shape):
    points, normals = getattr(shapes, shape)()
    moved = se3.exp(torch.tensor([0.2, -0.1, 0.15, 0.1, 0.2, -0.3], dtype=torch.float64))
    arrays = points, se3.apply(moved, points), se3.rotate(moved, normals)
    plain = point_to_plane(*arrays)
    with basic.basic_operations():
        other = point_to_plane(*arrays)
    assert_close(other.T_target_source, plain.T_target_source, rtol=0, atol=1e-6)
    assert torch.equal(other.converged, plain.converged)
