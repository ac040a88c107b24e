"""Screws, views and discs: what both the page and the pictures are made of."""

from __future__ import annotations

import numpy as np
import pytest

from p2plane.report.screws import Screw, ring, screw
from p2plane.report.splat import Window, splat
from p2plane.report.view import UPS, guess_up, view_rotation

WINDOW = Window(0.0, 0.0, 2.0, 2.0)


def motion(shape: Screw) -> np.ndarray:
    """(6,) the motion (omega, v) about the origin that a screw stands for."""
    omega = shape.turn * shape.axis
    return np.concatenate([omega, shape.slide * shape.axis - np.cross(omega, shape.point)])


@pytest.mark.parametrize("slide", [-1.0, -0.4, 0.0, 0.7])
def test_a_screw_is_the_motion_it_was_made_of(slide: float) -> None:
    axis = np.array([0.6, 0.0, -0.8])
    made = Screw(np.array([0.4, -0.3, 0.3]), axis, turn=1.0, slide=slide)  # the point is at right angles to the axis
    found = screw(3.0 * motion(made))
    np.testing.assert_allclose(found.point, made.point, atol=1e-12)
    np.testing.assert_allclose(found.axis, axis, atol=1e-12)
    assert (found.turn, found.slide) == (1.0, pytest.approx(slide, abs=1e-12))


def test_slides_and_turns_are_drawn_as_such() -> None:
    slide = screw(np.array([0.0, 0.0, 0.0, 0.0, -2.0, 0.0]))
    assert (slide.turn, slide.slide) == (0.0, 1.0)
    np.testing.assert_allclose(slide.axis, [0, -1, 0])
    # Turning about z through (0.5, 0, 0): v = -omega x point.
    turn = screw(np.array([0.0, 0.0, 1.0, 0.0, -0.5, 0.0]))
    assert turn.slide == 0.0
    np.testing.assert_allclose(turn.point, [0.5, 0, 0], atol=1e-12)
    far = screw(np.array([0.0, 0.0, 0.2, 1.0, 0.0, 0.0]))
    assert (far.turn, far.slide) == (0.0, 1.0)


def test_a_ring_goes_about_its_axis() -> None:
    turn = screw(np.array([1.0, 2.0, -1.0, 0.1, 0.0, 0.3]))
    around = ring(turn, radius=0.2) - turn.point
    np.testing.assert_allclose(around @ turn.axis, 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(around, axis=-1), 0.2)


@pytest.mark.parametrize("up", UPS)
def test_the_upright_axis_is_upright(up: str) -> None:
    rotation = view_rotation(up, azimuth=37.0, elevation=20.0)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) > 0
    axis = np.eye(3)["xyz".index(up[-1])] * (-1 if up.startswith("-") else 1)
    np.testing.assert_allclose(rotation @ axis, [0, np.cos(np.radians(20)), np.sin(np.radians(20))], atol=1e-12)


def test_what_lies_flat_lies_on_the_floor() -> None:
    points = np.random.default_rng(0).random((500, 3))
    assert guess_up(points * [1.0, 0.2, 1.0]) == "y"
    assert guess_up(points * [1.0, 0.8, 1.0]) == "z"
    assert guess_up(points[:0]) == "z"


Rows = list[list[float]]


def drawn(points: Rows, normals: Rows, colors: Rows, radius: float) -> np.ndarray:
    arrays = (np.array(values, dtype=np.float32).reshape(-1, 3) for values in (points, normals, colors))
    return splat(*arrays, np.full(len(points), radius), WINDOW, 100)


@pytest.mark.parametrize(("tilt", "share"), [(0.0, 1.0), (45.0, 0.7071), (60.0, 0.5)])
def test_a_tilted_disc_looks_narrower(tilt: float, share: float) -> None:
    angle = np.radians(tilt)
    image = drawn([[0, 0, 0]], [[np.sin(angle), 0, np.cos(angle)]], [[1, 0, 0]], radius=0.5)
    area = image[..., 3].sum() * 0.02**2
    assert area == pytest.approx(np.pi * 0.25 * share, rel=0.03)
    assert image[0, 0].tolist() == [0, 0, 0, 0]


def test_the_nearer_disc_hides_the_farther_one() -> None:
    facing = [[0, 0, 1], [0, 0, -1]]
    image = drawn([[0, 0, 0.1], [0.3, 0, -0.1]], facing, [[1, 0, 0], [0, 0, 1]], radius=0.3)
    assert image[50, 50, 0] > 0.5 > image[50, 50, 2]
    assert image[50, 77, 2] > 0.5 > image[50, 77, 0]


def test_an_image_without_discs_is_empty() -> None:
    assert not drawn([], [], [], radius=0.1).any()
    assert not drawn([[9, 9, 0]], [[0, 0, 1]], [[1, 1, 1]], radius=0.1).any()
