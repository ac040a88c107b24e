"""A made-up room and a depth camera in it: scans with partial overlap, shadows and noise, for when none are at hand."""

from __future__ import annotations

import numpy as np
import torch

from p2plane.data.cloud import Cloud
from p2plane.data.synthetic import SyntheticShapes

# Category, height in metres, place on the floor, turn about z in degrees, height over the floor.
FURNITURE = (
    ("desk", 0.75, (0.9, 0.5), 0.0, 0.0),
    ("chair", 0.9, (0.9, 1.3), 190.0, 0.0),
    ("bookshelf", 1.7, (2.6, 0.25), 0.0, 0.0),
    ("sofa", 0.8, (0.5, 3.0), 90.0, 0.0),
    ("lamp", 1.5, (0.35, 1.85), 0.0, 0.0),
    ("plant", 0.9, (3.4, 0.7), 20.0, 0.0),
    ("table", 0.5, (2.1, 2.7), 15.0, 0.0),
    ("vase", 0.3, (2.1, 2.7), 0.0, 0.5),
    ("piano", 1.1, (3.3, 2.2), 250.0, 0.0),
)
WIDTH, DEPTH, HEIGHT = 4.0, 4.0, 2.4
PIXELS, FOCAL = (240, 320), 270.0  # rows and columns of the image; focal length in pixels


def scan_room(
    eye: tuple[float, float, float], look_at: tuple[float, float, float], points: int, seed: int
) -> tuple[Cloud, np.ndarray]:
    """What a depth camera sees of the room, in its own frame, and the (4, 4) pose T_room_camera.

    Args:
        eye: where the camera is, in metres; the floor is z = 0.
        look_at: what is in the middle of its image.
        points: how many of the seen points are kept.
        seed: of the noise, whose standard deviation grows with the square of the depth.
    """
    T_room_camera = _looking(np.array(eye), np.array(look_at))
    points_camera = (_room() - T_room_camera[:3, 3]) @ T_room_camera[:3, :3]
    seen = points_camera[_visible(points_camera)]
    random = np.random.default_rng(seed)
    seen = seen[random.choice(len(seen), min(points, len(seen)), replace=False)]
    depth = seen[:, 2:]
    seen = seen * (1 + (0.001 + 0.0015 * depth**2) * random.standard_normal(depth.shape) / depth)
    return Cloud(torch.from_numpy(seen).float()), T_room_camera


def _room() -> np.ndarray:
    """(N, 3) points all over the furniture, the floor and two walls."""
    random = np.random.default_rng(0)
    square = random.random((150_000, 2))
    flat = np.zeros((150_000, 1))
    surfaces = [
        np.hstack([square * (WIDTH, DEPTH), flat]),
        np.hstack([square[:, :1] * WIDTH, flat, square[:, 1:] * HEIGHT]),
        np.hstack([flat, square[:, :1] * DEPTH, square[:, 1:] * HEIGHT]),
    ]
    return np.concatenate([*surfaces, *(_placed(*item) for item in FURNITURE)])


def _placed(category: str, height: float, place: tuple[float, float], turn_deg: float, over_floor: float) -> np.ndarray:
    shapes = SyntheticShapes("train", categories=[category], shapes_per_category=1, points=60_000)
    points = shapes[0].points.double().numpy()
    points = points * (height / np.ptp(points[:, 2]))
    points[:, 2] -= points[:, 2].min()
    turn = np.radians(turn_deg)
    R = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    return points @ R.T + (*place, over_floor)


def _looking(eye: np.ndarray, look_at: np.ndarray) -> np.ndarray:
    """(4, 4) T_room_camera of a camera whose z looks ahead and whose y looks down."""
    ahead = (look_at - eye) / np.linalg.norm(look_at - eye)
    right = np.cross(ahead, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    T = np.eye(4)
    T[:3, :3] = np.stack([right, np.cross(ahead, right), ahead], axis=1)
    T[:3, 3] = eye
    return T


def _visible(points_camera: np.ndarray) -> np.ndarray:
    """(K,) rows of the points (N, 3) that are the nearest of their pixel, or as near as makes no difference."""
    rows, columns = PIXELS
    depth = points_camera[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        image = points_camera[:, :2] / depth[:, None] * FOCAL + (columns / 2, rows / 2)
    inside = (depth > 0.3) & (image >= 0).all(1) & (image < (columns, rows)).all(1)
    ahead = inside.nonzero()[0]
    pixels = image[ahead].astype(int) @ (1, columns)
    nearest = np.full(rows * columns, np.inf)
    np.minimum.at(nearest, pixels, depth[ahead])
    return ahead[depth[ahead] < nearest[pixels] + 0.02]
