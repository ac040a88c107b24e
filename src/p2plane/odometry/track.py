"""From scan to scan: of the past, only the last good scan and the last motion are remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

import torch
from torch import Tensor

from p2plane.odometry.motion import Motion, motion_between, unsure_information
from p2plane.odometry.scans import Opened
from p2plane.odometry.trajectory import Step
from p2plane.registration.scan import Scan


def track(scans: Iterable[Opened], seed: int = 0) -> Iterator[tuple[Step, Scan | None]]:
    """The step of each scan, and the scan itself, if there is one.

    A scan that cannot be used stays where constant velocity leads, and the next is registered onto the last good one.
    """
    tracker = _Tracker()
    for index, opened in enumerate(scans):
        yield tracker.step(index, opened, seed), opened.scan


class _Tracker:
    def __init__(self) -> None:
        self.reference: tuple[int, Scan] | None = None  # the last good scan
        self.T_world_reference = torch.eye(4, dtype=torch.float64)
        self.T_velocity = torch.eye(4, dtype=torch.float64)  # the motion from one scan to the next

    def step(self, index: int, opened: Opened, seed: int) -> Step:
        if index == 0:
            if opened.scan is not None:
                self.reference = 0, opened.scan
            problems = (opened.problem,) if opened.problem else ()
            return Step(0, opened.name, self.T_world_reference, "start", confident=not problems, warnings=problems)
        previous, before = self.reference or (index - 1, None)
        T_predicted = torch.linalg.matrix_power(self.T_velocity, index - previous)
        if opened.scan is None:
            motion = _unknown(T_predicted, before, opened.problem)
        elif before is None:
            motion = _unknown(T_predicted, opened.scan, "no scan before it could be used")
        else:
            motion = motion_between(opened.scan, before, T_predicted, 1_000_003 * seed + index)
        T_world_scan = self.T_world_reference @ motion.T_previous_scan
        if opened.scan is not None:
            if motion.origin == "icp" and index - previous == 1:  # a jump, which had to be searched, is no velocity
                self.T_velocity = motion.T_previous_scan
            self.reference, self.T_world_reference = (index, opened.scan), T_world_scan
        known = {field.name: getattr(motion, field.name) for field in fields(Motion)}
        return Step(index, opened.name, T_world_scan, previous=previous, **known)


def _unknown(T_predicted: Tensor, scan: Scan | None, problem: str) -> Motion:
    """Nothing but the prediction is known, and a reason for it."""
    information = unsure_information(0.0 if scan is None else scan.size)
    return Motion(T_predicted, information, "predicted", False, warnings=(problem,))
