"""Who proposes poses between two scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.classical.field import Surface
from p2plane.classical.sweep import SweepSettings, sweep
from p2plane.data.cloud import Cloud
from p2plane.registration.knowledge import Knowledge
from p2plane.registration.refine import approach
from p2plane.registration.scan import Scan, spacing, thin_to

SWEEP_SOURCE, SWEEP_TARGET = 400, 1500
FINER_ROTATIONS, FINER_PROPOSALS = 1500, 8  # for scans that have little in common: a second look costs a second
METHOD_POINTS = 5000
INITIAL_POINTS, INITIAL_REACH = 3000, 4.0  # the reach in units of the spacing
FLAGSHIP = "tessera"
MODEL_POINTS = 768  # as many as networks are trained on

Proposer = Callable[[Scan, Scan, Knowledge, int], Tensor]
"""(source, target, knowledge, seed) -> (P, 4, 4) poses between the centred scans, best first."""


class Opinion(NamedTuple):
    """Somebody who is asked for poses."""

    stage: str
    origin: str
    """Who it is: what one says twice is no second opinion."""
    propose: Proposer


def from_initial(source: Scan, target: Scan, knowledge: Knowledge, seed: int) -> Tensor:
    """The initial pose, the user's or the identity between the given frames, and where plain ICP gets from there."""
    clouds = thin_to(source.cloud, INITIAL_POINTS), thin_to(target.cloud, INITIAL_POINTS)
    reach = INITIAL_REACH * max(spacing(cloud.points) for cloud in clouds)
    T_initial = knowledge.T_initial
    near = approach(*clouds, T_initial, reach, knowledge.hold) if reach > 0 else T_initial
    return torch.stack([T_initial, near])


def from_sweep(settings: SweepSettings) -> Proposer:
    """Poses from a sweep over all rotations that may be right."""

    def propose(source: Scan, target: Scan, knowledge: Knowledge, seed: int) -> Tensor:
        proposals = sweep(
            _surface(thin_to(source.cloud, SWEEP_SOURCE)),
            _surface(thin_to(target.cloud, SWEEP_TARGET)),
            rotations=knowledge.rotations(settings.rotations),
            starts=knowledge.T_initial[None],
            initial=knowledge.T_initial,
            hold=knowledge.hold,
            settings=settings,
        )
        return proposals.T_target_source

    return propose


def from_method(name: str) -> Proposer:
    """Poses from one of the registered methods."""

    def propose(source: Scan, target: Scan, knowledge: Knowledge, seed: int) -> Tensor:
        from p2plane.methods import is_model, method

        most = MODEL_POINTS if is_model(name) else METHOD_POINTS
        clouds = [thin_to(scan.cloud, most) for scan in (source, target)]
        points, normals = [cloud.points[None] for cloud in clouds], [cloud.normals[None] for cloud in clouds]  # type: ignore[index]
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            return method(name)(*points, *normals, generator=generator).T_target_source.double()

    return propose


def _finer(settings: SweepSettings) -> SweepSettings:
    """The same search over more rotations; twice as many of them stay in it."""
    stages = tuple((2 * keep, reaches) for keep, reaches in settings.stages)
    return replace(settings, rotations=FINER_ROTATIONS, stages=stages, proposals=FINER_PROPOSALS)


def _surface(cloud: Cloud) -> Surface:
    assert cloud.normals is not None
    return Surface(cloud.points, cloud.normals)


def plan(method: str) -> list[Opinion]:
    """Who is asked, in this order."""
    if method == "initial":
        return [Opinion("initial", "initial", from_initial)]
    first = Opinion("sweep", "sweep", from_sweep(SweepSettings()))
    finer = Opinion("finer sweep", "sweep", from_sweep(_finer(SweepSettings())))
    if method == "sweep":
        return [first, finer]
    if method != "auto":
        from p2plane.methods import require

        require(method)
        return [_opinion_of(method)]
    # The sweep first: it is right more often than the others, and it alone knows of other poses that fit as well.
    opinions = [first, _opinion_of(FLAGSHIP), finer]
    return [*opinions, _opinion_of("ransac")] if find_spec("open3d") is not None else opinions


def _opinion_of(method: str) -> Opinion:
    return Opinion(method, method, from_method(method))
