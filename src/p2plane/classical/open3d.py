"""Global registration by features, through Open3D: fast global registration (FGR) and RANSAC.

FPFH features of both clouds are matched. FGR looks for the pose that most matches agree on by a robust optimisation,
RANSAC by trying the poses of random triples of matches. Open3D is an extra: ``pip install 'p2plane[open3d]'``.

All lengths are in units of the spacing of the points, so that neither the unit of the clouds nor their density
matters. Papers that give lengths give them for their own clouds: "FPFH radius 0.3" for shapes in the unit sphere with
about 700 points is five spacings, which is the default here.

References: Zhou, Park, Koltun, "Fast Global Registration", ECCV 2016; Rusu, Blodow, Beetz, "Fast Point Feature
Histograms (FPFH) for 3D registration", ICRA 2009.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from p2plane.classical.icp import icp
from p2plane.classical.pairwise import Found, PairwiseMethod
from p2plane.classical.scales import Scale, Surface
from p2plane.geometry import se3
from p2plane.geometry.neighbors import knn
from p2plane.geometry.normals import orient
from p2plane.solve.robust import Tukey

REMEDY = "FGR and RANSAC need Open3D: pip install 'p2plane[open3d]' (from a checkout: pip install '.[open3d]')"
REFINEMENTS = ("robust", "plain", "none")
_SPACING_NEIGHBORS = 8


def import_open3d() -> Any:
    """Open3D, or an ImportError that names the remedy."""
    _load_libusb()
    try:
        return import_module("open3d")
    except (ImportError, OSError) as error:
        raise ImportError(f"{REMEDY}; {error}") from error


def _load_libusb() -> None:
    """Open3D links to libusb, which bare machines lack: the library of a wheel will do if it is loaded first."""
    try:
        path = import_module("libusb_package").get_library_path()
        if path is not None:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except (ImportError, OSError):
        pass  # then the system must have one; Open3D says so if it has not


@dataclass(frozen=True)
class FeatureConfig:
    """Settings that FGR and RANSAC share; lengths in units of the spacing."""

    spacing: float | None = None
    """The unit of the other lengths; None for the spacing of the points of the sparser cloud, the side of the square
    that each has to itself. One makes the other lengths absolute."""
    feature_radius: float = 5.0
    """Of the neighbourhood that an FPFH feature describes."""
    feature_neighbors: int = 128
    """The most points of it."""
    orient_normals: bool = True
    """Whether the features see the normals turned away from the middle of their cloud, as the signs of estimated ones
    mean nothing."""
    refinement: str = "robust"
    """Point-to-plane ICP from the pose found: "robust" with a Tukey kernel of two radii, "plain" without a kernel, or
    "none"."""
    refinement_radii: tuple[float, float] = (3.0, 1.5)
    """Distances beyond which partners do not count, one after the other; "plain" takes the second."""

    def __post_init__(self) -> None:
        if self.refinement not in REFINEMENTS:
            raise ValueError(f"refinement must be one of {REFINEMENTS}, got {self.refinement!r}")
        if len(self.refinement_radii) != 2:
            raise ValueError(f"refinement_radii must be two lengths, got {self.refinement_radii!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(each, int | float) and each is not False and not 0 < each < math.inf for each in numbers):
                raise ValueError(f"{field.name} must be positive, got {value!r}")


@dataclass(frozen=True)
class FGRConfig(FeatureConfig):
    """Settings of `FGR`."""

    refinement: str = "none"

    max_distance: float = 0.5
    """Between partners, at the end of the optimisation."""
    iterations: int = 64
    max_tuples: int = 1000
    """Triples of matches that are used, at most."""


@dataclass(frozen=True)
class RANSACConfig(FeatureConfig):
    """Settings of `RANSAC`."""

    max_distance: float = 1.5
    """Between partners that agree with a pose."""
    iterations: int = 10_000
    confidence: float = 0.999
    """The search ends early once it is so sure to have found the best pose."""
    mutual: bool = False
    """Whether only matches count in which each is the other's best."""
    edge_similarity: float = 0.9
    """The sides of a triple in one cloud must be so similar to those in the other, as ratios."""


class _FeatureMethod(PairwiseMethod):
    """Features, a pose from Open3D, and a refinement of our own."""

    fewest_points = 3
    needs_normals = (True, True)
    config: Any

    def _pose(self, open3d: Any, clouds: list[Any], features: list[Any], spacing: float) -> np.ndarray:
        """(4, 4) between clouds that are centred and scaled into the unit ball."""
        raise NotImplementedError

    def find(self, source: Surface, target: Surface, generator: torch.Generator | None) -> Found:
        open3d = import_open3d()
        open3d.utility.random.seed(int(torch.randint(2**31, (), generator=generator)))
        centers = [surface.points.double().mean(0) for surface in (source, target)]
        centered = [each.points.double() - center for each, center in zip((source, target), centers, strict=True)]
        radius = max(float(points.norm(dim=1).max()) for points in centered) or 1.0
        spacing = self.config.spacing or max(map(spacing_of, centered)) or radius
        clouds = [
            _cloud(open3d, points / radius, surface.normals, self.config.orient_normals)
            for points, surface in zip(centered, (source, target), strict=True)
        ]
        features = [_features(open3d, cloud, spacing / radius, self.config) for cloud in clouds]
        T = torch.from_numpy(np.array(self._pose(open3d, clouds, features, spacing / radius)))
        R = T[:3, :3]
        T = se3.from_rotation_translation(R, radius * T[:3, 3] + centers[1] - R @ centers[0])
        return self._refined(source, target, T, spacing)

    def _refined(self, source: Surface, target: Surface, T: Tensor, spacing: float) -> Found:
        if self.config.refinement == "none":
            return Found(T)
        radii = [radius * spacing for radius in self.config.refinement_radii]
        scales = [Scale(None, radius, robust=Tukey(radius)) for radius in radii]
        if self.config.refinement == "plain":
            scales = [Scale(None, radii[-1])]
        points = source.points.double(), target.points.double()
        assert target.normals is not None
        end = icp(*points, None, target.normals.double(), initial=T, scales=scales)
        return Found(end.T_target_source, bool(end.converged), int(end.iterations))


class FGR(_FeatureMethod):
    """Fast global registration; as published, without a refinement."""

    def __init__(self, config: FGRConfig | None = None) -> None:
        self.config = config or FGRConfig()

    def _pose(self, open3d: Any, clouds: list[Any], features: list[Any], spacing: float) -> np.ndarray:
        registration = open3d.pipelines.registration
        option = registration.FastGlobalRegistrationOption(
            use_absolute_scale=True,
            decrease_mu=True,
            maximum_correspondence_distance=self.config.max_distance * spacing,
            iteration_number=self.config.iterations,
            maximum_tuple_count=self.config.max_tuples,
        )
        search = registration.registration_fgr_based_on_feature_matching
        return search(*clouds, *features, option).transformation


class RANSAC(_FeatureMethod):
    """RANSAC over matched features, and a refinement: with the defaults the paper's RANSAC-10K."""

    def __init__(self, config: RANSACConfig | None = None) -> None:
        self.config = config or RANSACConfig()

    def _pose(self, open3d: Any, clouds: list[Any], features: list[Any], spacing: float) -> np.ndarray:
        registration = open3d.pipelines.registration
        distance = self.config.max_distance * spacing
        with _one_thread(open3d):
            return registration.registration_ransac_based_on_feature_matching(
                *clouds,
                *features,
                self.config.mutual,
                distance,
                registration.TransformationEstimationPointToPoint(),
                3,
                [
                    registration.CorrespondenceCheckerBasedOnEdgeLength(self.config.edge_similarity),
                    registration.CorrespondenceCheckerBasedOnDistance(distance),
                ],
                registration.RANSACConvergenceCriteria(self.config.iterations, self.config.confidence),
            ).transformation


@contextmanager
def _one_thread(open3d: Any) -> Iterator[None]:
    """With more, the seed does not decide: which of them ends the search early is chance.

    Open3D before 0.20 has no such limit, but heeds OMP_NUM_THREADS.
    """
    limit = getattr(open3d.utility, "set_max_threads", None)
    if limit is None:
        yield
        return
    before = open3d.utility.get_max_threads()
    limit(1)
    try:
        yield
    finally:
        limit(before)


def spacing_of(points: Tensor) -> float:
    """The side of the square that each of the points (N, 3) on a surface has to itself, by the median.

    A circle that reaches to the k-th neighbour holds k such squares.
    """
    k = min(_SPACING_NEIGHBORS, len(points) - 1)
    reach = knn(points, points, k + 1).distances[:, -1].median()
    return float(reach) * math.sqrt(math.pi / max(1, k))


def _cloud(open3d: Any, points: Tensor, normals: Tensor | None, turn: bool) -> Any:
    assert normals is not None
    normals = normals.double()
    if turn:
        normals = -orient(normals, points, points.new_zeros(3))
    cloud = open3d.geometry.PointCloud()
    cloud.points = open3d.utility.Vector3dVector(points.numpy(force=True))
    cloud.normals = open3d.utility.Vector3dVector(normals.numpy(force=True))
    return cloud


def _features(open3d: Any, cloud: Any, spacing: float, config: FeatureConfig) -> Any:
    radius = config.feature_radius * spacing
    neighborhood = open3d.geometry.KDTreeSearchParamHybrid(radius=radius, max_nn=config.feature_neighbors)
    return open3d.pipelines.registration.compute_fpfh_feature(cloud, neighborhood)
