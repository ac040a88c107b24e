"""Deep, differentiable point-to-plane registration of 3D point clouds."""

from p2plane.batch import register_many
from p2plane.data.cloud import Cloud
from p2plane.data.io import load_cloud, save_cloud
from p2plane.geometry import se3, so3
from p2plane.geometry.normals import estimate_normals
from p2plane.odometry import odometry
from p2plane.registration import Registration, register
from p2plane.solve.alignment import Alignment, Observability
from p2plane.solve.distances import (
    plane_to_plane,
    point_to_distribution,
    point_to_plane,
    point_to_point,
    symmetric_point_to_plane,
)
from p2plane.solve.general import implicit_pose
from p2plane.solve.layers import PlaneToPlane, PointToDistribution, PointToPlane, PointToPoint, SymmetricPointToPlane
from p2plane.solve.robust import Cauchy, GemanMcClure, Huber, Trimmed, Tukey

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Cauchy",
    "Cloud",
    "GemanMcClure",
    "Huber",
    "Observability",
    "PlaneToPlane",
    "PointToDistribution",
    "PointToPlane",
    "PointToPoint",
    "Registration",
    "SymmetricPointToPlane",
    "Trimmed",
    "Tukey",
    "estimate_normals",
    "implicit_pose",
    "load_cloud",
    "odometry",
    "plane_to_plane",
    "point_to_distribution",
    "point_to_plane",
    "point_to_point",
    "register",
    "register_many",
    "save_cloud",
    "se3",
    "so3",
    "symmetric_point_to_plane",
]
