"""A series of scans in, the path of the scanner out: each scan registered onto the one before."""

from p2plane.odometry.run import odometry
from p2plane.odometry.trajectory import Step, Trajectory

__all__ = ["Step", "Trajectory", "odometry"]
