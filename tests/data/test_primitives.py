"""Surfaces made by program: points upon them, normals out of them, as many as the area asks for."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from p2plane.data.shapes.parts import Part, covers, sample_outside
from p2plane.data.shapes.primitives import Box, Prism, Revolution, Sphere, Torus
from p2plane.data.shapes.solids import box, case, cone, cylinder, hollow_box, pipe, rod, silhouette, sphere

HEXAGON = [(1.0, 0.0), (0.6, 0.8), (-0.5, 0.7), (-0.9, 0.0), (-0.4, -0.8), (0.7, -0.6)]
ARROW = [(1.0, 0.0), (-1.0, 1.0), (-0.5, 0.0), (-1.0, -1.0)]
CUP = [(0.0, 0.0), (0.5, 0.0), (0.8, 1.0), (0.7, 1.0), (0.4, 0.1), (0.0, 0.1)]
RING = [(0.5, 0.0), (0.9, 0.1), (0.7, 0.6), (0.5, 0.0)]

CLOSED = {
    "box": (Box(0.5, 1.0, 1.5), 0.75),
    "hexagon": (Prism(HEXAGON, 0.7), 0.7 * 2.185),
    "arrow": (Prism(ARROW, 0.4), 0.4 * 1.5),
    "cylinder": (Revolution([(0, 0), (0.6, 0), (0.6, 1.4), (0, 1.4)]), math.pi * 0.36 * 1.4),
    "cone": (Revolution([(0, 0), (0.6, 0), (0, 1.4)]), math.pi * 0.36 * 1.4 / 3),
    "sphere": (Sphere(0.7), 4 / 3 * math.pi * 0.343),
    "torus": (Torus(0.8, 0.3), 2 * math.pi**2 * 0.8 * 0.09),
    "cup": (Revolution(CUP), None),
    "ring": (Revolution(RING), None),
}


def implicit(name: str, points: Tensor) -> Tensor:
    """Signed distance, or a multiple of it, to the surface of a closed primitive: negative inside."""
    x, y, z = points.unbind(-1)
    radius = torch.hypot(x, y)
    if name == "box":
        return torch.stack([x.abs() - 0.25, y.abs() - 0.5, (z - 0.75).abs() - 0.75]).amax(0)
    if name == "hexagon":
        corners = torch.tensor(HEXAGON, dtype=points.dtype)
        edges = corners.roll(-1, 0) - corners
        walls = [((x - c[0]) * e[1] - (y - c[1]) * e[0]) / e.norm() for c, e in zip(corners, edges, strict=True)]
        return torch.stack([*walls, -z, z - 0.7]).amax(0)
    if name == "cylinder":
        return torch.stack([radius - 0.6, -z, z - 1.4]).amax(0)
    if name == "cone":
        return torch.stack([(1.4 * radius + 0.6 * z - 0.84) / math.hypot(0.6, 1.4), -z]).amax(0)
    if name == "sphere":
        return points.norm(dim=-1) - 0.7
    return torch.hypot(radius - 0.8, z) - 0.3


@pytest.mark.parametrize("name", ["box", "hexagon", "cylinder", "cone", "sphere", "torus"])
def test_points_solve_the_equation_and_normals_are_its_gradient(name):
    points, normals = CLOSED[name][0].sample(500, np.random.default_rng(0))
    leaf = torch.tensor(points, requires_grad=True)
    values = implicit(name, leaf)
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    assert values.abs().max() < 1e-12
    np.testing.assert_allclose(normals, gradient.numpy(), atol=1e-9)


@pytest.mark.parametrize("name", CLOSED)
def test_normals_are_unit_and_lead_from_inside_to_outside(name):
    part = Part(CLOSED[name][0])
    points, normals = part.sample(500, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-12)
    assert covers([part], points - 1e-7 * normals).all()
    assert not covers([part], points + 1e-7 * normals).any()


@pytest.mark.parametrize("name", ["box", "hexagon", "cylinder", "cone", "sphere", "torus"])
def test_inside_is_where_the_equation_is_negative(name):
    points = np.random.default_rng(0).uniform(-1.6, 1.6, size=(4000, 3))
    np.testing.assert_array_equal(covers([Part(CLOSED[name][0])], points), implicit(name, torch.tensor(points)) < 0)


@pytest.mark.parametrize("name", CLOSED)
def test_sampling_by_area_obeys_the_divergence_theorem(name):
    """Over a closed surface n integrates to zero, and x n_x, x^3 n_x / 3, z x^2 n_z as 1, x^2, x^2 over the solid."""
    surface, volume = CLOSED[name]
    generator = np.random.default_rng(0)
    points, normals = surface.sample(60_000, generator)
    lower, upper = np.array(surface.lower), np.array(surface.upper)
    cube = generator.uniform(lower, upper, size=(200_000, 3))
    inside = surface.contains(cube)[:, None] * np.prod(upper - lower)
    assert_same_mean(normals, np.zeros((2, 3)))
    assert_same_mean(surface.area * points * normals, inside if volume is None else np.full((2, 1), volume))
    assert_same_mean(inside, surface.area * points * normals)
    assert_same_mean(surface.area * points**3 * normals / 3, inside * cube**2)
    before, normals_before = np.roll(points, 1, axis=1), np.roll(normals, 1, axis=1)
    assert_same_mean(surface.area * before * points**2 * normals_before, inside * cube**2)


def assert_same_mean(first, second):
    """The columns of two samples agree in the mean, within five standard errors."""
    error = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second))
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 5 * error + 1e-12).all()


def test_shares_of_the_area_are_the_known_ones():
    generator = np.random.default_rng(0)
    cone_points, cone_normals = CLOSED["cone"][0].sample(40_000, generator)
    side = cone_normals[:, 2] > 0
    assert side.mean() == pytest.approx(1 / (1 + 0.6 / math.hypot(0.6, 1.4)), abs=0.015)
    assert (cone_points[side, 2] < 0.7).mean() == pytest.approx(0.75, abs=0.015)
    torus_points, _ = CLOSED["torus"][0].sample(40_000, generator)
    outer = np.hypot(torus_points[:, 0], torus_points[:, 1]) > 0.8
    assert outer.mean() == pytest.approx(0.5 + 0.3 / (math.pi * 0.8), abs=0.015)
    assert (Sphere(1.0).sample(40_000, generator)[0][:, 2] > 0.5).mean() == pytest.approx(0.25, abs=0.015)
    assert (Torus(1.0, 0.2, math.pi / 2).sample(100, generator)[0][:, :2] >= 0).all()


def test_a_part_is_turned_and_then_moved():
    part = box(1, 2, 3).turned("z", math.pi / 2).at(5, 0, 0)
    points, _ = part.sample(5000, np.random.default_rng(0))
    np.testing.assert_allclose(points.min(axis=0), [4, -0.5, 0], atol=0.01)
    np.testing.assert_allclose(points.max(axis=0), [6, 0.5, 3], atol=0.01)
    np.testing.assert_allclose(part.rotation @ part.rotation.T, np.eye(3), atol=1e-12)


def test_a_silhouette_stands_up_as_drawn():
    points, _ = silhouette([(0, 0), (2, 0), (2, 1)], 0.5).sample(5000, np.random.default_rng(0))
    np.testing.assert_allclose(points.min(axis=0), [0, -0.25, 0], atol=0.05)
    np.testing.assert_allclose(points.max(axis=0), [2, 0.25, 1], atol=0.05)


def test_a_rod_goes_from_point_to_point():
    start, end = np.array([0.1, -0.4, 0.3]), np.array([-0.6, 0.5, 1.1])
    points, _ = rod(start, end, 0.2).sample(500, np.random.default_rng(0))
    direction = (end - start) / np.linalg.norm(end - start)
    along = (points - start) @ direction
    across = np.linalg.norm(points - start - along[:, None] * direction, axis=1)
    assert along.min() > -1e-12
    assert along.max() < np.linalg.norm(end - start) + 1e-12
    assert across.max() < 0.2 + 1e-12


def test_a_pipe_keeps_its_radius_round_the_bends_and_shows_no_inner_lids():
    path = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1.5)], dtype=float)
    parts = pipe(path, 0.1, 0.3)
    points, normals = sample_outside(parts, 4000, np.random.default_rng(0))
    spine = points - 0.1 * normals
    lids = (np.abs(normals - [0, 0, -1]).max(axis=1) < 1e-9) | (points[:, 1] > 0.9)
    near = np.min([_distance_to_segment(spine, a, b) for a, b in pairwise(path)], axis=0)
    assert near[~lids].max() < 0.3 * (math.sqrt(2) - 1) + 1e-9  # a bend cuts its corner by this much
    assert sum(part.surface.area for part in parts) == pytest.approx(_visible_area(parts), rel=1e-9)
    assert covers(parts, points - 1e-6 * normals).all()


def _distance_to_segment(points, start, end):
    share = np.clip((points - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
    return np.linalg.norm(points - start - share[:, None] * (end - start), axis=1)


def _visible_area(parts):
    generator, area = np.random.default_rng(0), 0.0
    for part in parts:
        points, normals = part.sample(500, generator)
        area += part.surface.area * (1 - covers(parts, points + 1e-6 * normals).mean())
    return area


def test_covered_parts_of_the_surface_are_left_out():
    stacked = [box(1, 1, 1), box(1, 1, 1).at(0, 0, 1)]  # together one box of 1 x 1 x 2
    points, normals = sample_outside(stacked, 20_000, np.random.default_rng(0))
    level = np.abs(normals[:, 2]) > 0.5
    assert not (level & (np.abs(points[:, 2] - 1) < 1e-9)).any()
    assert level.mean() == pytest.approx(0.2, abs=0.015)
    crossed = [cylinder(0.3, 2), sphere(0.6).at(0, 0, 1)]
    points, _ = sample_outside(crossed, 2000, np.random.default_rng(0))
    assert len(points) == 2000
    assert (np.linalg.norm(points - [0, 0, 1], axis=1) > 0.6 - 1e-9).all()


@pytest.mark.parametrize(
    ("parts", "opening"), [(hollow_box(1, 1, 1, 0.1), [0, 0, 1]), (case(1, 1, 1, 0.1), [0, -1, 0])]
)
def test_hollow_boxes_are_open_on_one_side(parts, opening):
    points, normals = sample_outside(parts, 4000, np.random.default_rng(0))
    centre = np.array([0, 0, 0.5])
    ray = centre + np.linspace(0, 1, 50)[:, None] * opening
    assert not covers(parts, ray).any()
    inner = np.abs(points - centre).max(axis=1) < 0.4 + 1e-9
    assert inner.mean() == pytest.approx(5 * 0.64 / _visible_area(parts), abs=0.05)
    assert ((points - centre)[inner] * normals[inner]).sum(axis=1).max() < 0.05  # facing the hollow


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box(1, 0, 1), "depth must be positive, got 0"),
        (lambda: Sphere(float("nan")), "radius must be positive, got nan"),
        (lambda: Torus(0.5, 0.6), "minor must be at most major = 0.5, got 0.6"),
        (lambda: Torus(0.5, 0.1, 7.0), "sweep must be at most 2 pi, got 7.0"),
        (lambda: Prism([(0, 0), (1, 0)], 1), r"polygon must have shape \(K, 2\) with K at least 3, got \(2, 2\)"),
        (lambda: Prism(HEXAGON[::-1], 1), "polygon must turn counter-clockwise"),
        (lambda: Revolution([(-0.1, 0), (1, 0)]), "profile must have radii of zero or more, got -0.1"),
        (lambda: Revolution([(1, 0), (1, 0), (1, 1)]), "profile must not repeat a point"),
        (lambda: pipe([(0, 0, 0), (0, 0, 1), (1, 0, 1)], 0.1, 2.0), "bend must be small enough to fit"),
        (lambda: cone(1, 1, 1).turned("w", 1.0), "axis must be 'x', 'y' or 'z', got 'w'"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
