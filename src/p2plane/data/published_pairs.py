"""Pairs exactly as the published programs of DCP, PRNet and RPMNet make them.

Every test pair is the one that they draw for that index, random number by random number; training pairs are drawn in
the same way from a stream of their own. Two habits are kept because results depend on them: the test pairs of DCP and
PRNet are *duplicated* (source and target are the same points, moved), and RPMNet's crop, motion and choice of points
start from the same seed, so that they are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import RandomState

from p2plane.data.augment import Made, Side, draw, half_space, inverse, jitter, near_viewpoint, random_motion, shuffle

POINTS, KEPT, SHARE = 1024, 768, 0.7
MAX_ANGLE_DEG, MAX_TRANSLATION = 45.0, 0.5
NOISE, CLIP = 0.01, 0.05

Stream = Callable[[], RandomState]  # where the published test code seeds again, asking again starts again


def dcp(shape: Side, stream: Stream, is_test: bool) -> Made:
    """The first 1024 points, the same moved, both in another order."""
    random = stream()
    source = shape.rows(slice(POINTS))
    T_target_source = random_motion(random, MAX_ANGLE_DEG, MAX_TRANSLATION)
    target = source.moved(T_target_source)
    return Made(shuffle(random, source), shuffle(random, target), T_target_source, T_target_source)


def prnet(shape: Side, stream: Stream, is_test: bool, noisy: bool = False) -> Made:
    """DCP's pair, with noise of its own on each cloud if it is noisy, and the 768 points nearest to one view point."""
    random = stream()
    source, target, *motions = dcp(shape, lambda: random, is_test)
    if noisy:
        source, target = (_jitter_by_channel(random, side) for side in (source, target))
    source, target = near_viewpoint(random, source, target, keep=KEPT)
    return Made(source, target, *motions)


def rpmnet_clean(shape: Side, stream: Stream, is_test: bool) -> Made:
    """1024 points, the first of them for testing, the source moved away, both in another order."""
    random = stream()
    both = shape.rows(slice(POINTS) if is_test else draw(random, len(shape.points), POINTS))
    random = stream()
    source, T_target_source = _moved_away(random, both)
    return _shuffled(random, source, both, T_target_source)


def rpmnet_jitter(shape: Side, stream: Stream, is_test: bool) -> Made:
    """The source moved away, 1024 points drawn for each, noise on each."""
    source, T_target_source = _moved_away(stream(), shape)
    return _noisy_sample(stream(), source, shape, T_target_source, POINTS)


def rpmnet_crop(shape: Side, stream: Stream, is_test: bool) -> Made:
    """Each side cropped by its own half space, then as `rpmnet_jitter` with 717 points."""
    random = stream()
    source, target = half_space(random, shape, SHARE), half_space(random, shape, SHARE)
    source, T_target_source = _moved_away(stream(), source)
    return _noisy_sample(stream(), source, target, T_target_source, math.ceil(SHARE * POINTS))


PUBLISHED: dict[str, Callable[[Side, Stream, bool], Made]] = {
    "dcp": dcp,
    "prnet": prnet,
    "prnet-noisy": partial(prnet, noisy=True),
    "rpmnet-clean": rpmnet_clean,
    "rpmnet-jitter": rpmnet_jitter,
    "rpmnet-crop": rpmnet_crop,
}


def _moved_away(random: RandomState, source: Side) -> tuple[Side, np.ndarray]:
    """RPMNet moves the source, so that the true motion is the inverse of what was drawn."""
    T_moved_source = random_motion(random, MAX_ANGLE_DEG, MAX_TRANSLATION)
    return source.moved(T_moved_source), inverse(T_moved_source)


def _noisy_sample(random: RandomState, source: Side, target: Side, T_target_source: np.ndarray, count: int) -> Made:
    source, target = (side.rows(draw(random, len(side.points), count)) for side in (source, target))
    source, target = (jitter(random, side, NOISE, CLIP) for side in (source, target))
    return _shuffled(random, source, target, T_target_source)


def _shuffled(random: RandomState, source: Side, target: Side, T_target_source: np.ndarray) -> Made:
    target = shuffle(random, target)  # first, as published
    return Made(shuffle(random, source), target, T_target_source, np.eye(4))


def _jitter_by_channel(random: RandomState, side: Side) -> Side:
    """PRNet draws the noise of all x, then of all y and z."""
    noise = np.clip(NOISE * random.standard_normal(side.points.T.shape), -CLIP, CLIP).T
    return side._replace(points=side.points + noise.astype(side.points.dtype))
