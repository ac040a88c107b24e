"""Open directions come sorted, along the axes where possible, and in words."""

from __future__ import annotations

import pytest
import torch

from p2plane.geometry import so3
from p2plane.registration.words import canonical, in_words

WALL = [[0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]  # the plane z = 0
SPHERE = [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
CYLINDER = [[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]]  # about z


def mixed(directions: list[list[float]], seed: int = 0) -> torch.Tensor:
    """Another orthonormal basis of the same motions, as an eigenvalue solver gives it."""
    rows = torch.tensor(directions, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(len(rows), len(rows), generator=generator, dtype=torch.float64)).Q @ rows


@pytest.mark.parametrize(
    ("directions", "words"),
    [
        (WALL, ["slides along x", "slides along y", "turns about z"]),
        (SPHERE, ["turns about x", "turns about y", "turns about z"]),
        (CYLINDER, ["slides along z", "turns about z"]),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_basis_comes_the_words_are_the_same(directions, words, seed):
    center = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    said = in_words(canonical(mixed(directions, seed)), center, 2.0)
    assert sorted(word.split(" through")[0] for word in said) == sorted(words)
    assert all("through (1, 2, 3)" in word for word in said if word.startswith("turns") and directions is not WALL)


def test_the_canonical_motions_span_the_same_space():
    for directions in (WALL, SPHERE, CYLINDER):
        given, found = mixed(directions), canonical(mixed(directions))
        assert found.shape == given.shape
        torch.testing.assert_close(found @ given.mT @ given, found)
        assert torch.linalg.matrix_rank(found) == len(given)


def test_a_slanted_axis_is_a_vector_and_a_turn_has_its_place():
    axis = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64) / 2**0.5
    place = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    # About an axis through a place away from the centre: v = -omega x place.
    motion = torch.cat([axis, -torch.linalg.cross(axis, place)])
    said = in_words(canonical((motion / motion.norm())[None]), torch.zeros(3, dtype=torch.float64), 1.0)
    assert said == ("turns about (0.707, 0.707, 0) through (0, 0, 1)",)


def test_nothing_open_needs_no_words():
    assert in_words(canonical(torch.zeros(0, 6, dtype=torch.float64)), torch.zeros(3), 1.0) == ()


def test_turning_the_scene_turns_the_motions():
    R = so3.random(generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    turned = torch.block_diag(R, R)
    directions = mixed(CYLINDER) @ turned.mT
    slide, turn = canonical(directions)
    torch.testing.assert_close(slide[3:].abs(), R[:, 2].abs())
    torch.testing.assert_close(turn[:3].abs(), R[:, 2].abs(), atol=1e-9, rtol=0)
