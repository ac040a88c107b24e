"""The motion between two scans of which one is soon after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from p2plane.classical.icp import icp
from p2plane.classical.scales import coarse_to_fine
from p2plane.registration.answer import Answer, Search
from p2plane.registration.confidence import reservations
from p2plane.registration.knowledge import Knowledge, left_difference, left_step
from p2plane.registration.proposals import plan
from p2plane.registration.scan import Scan
from p2plane.solve.robust import Tukey

LEVELS, REACH = 3, 3.0  # of the coarse-to-fine ICP: voxels from four spacings to one, partners within three voxels
LEAST_FITNESS = 0.3  # an answer that is not confident is taken if so much of the scan has a partner
UNSURE_ANGLE, UNSURE_SHARE = 0.5, 0.25  # standard deviations of an unsure motion: radians, and share of the scan's size


@dataclass(frozen=True)
class Motion:
    """What is known of the motion since the scan before; the fields are those of `Step`."""

    T_previous_scan: Tensor
    information: Tensor
    origin: str
    confident: bool
    fitness: float = 0.0
    plane_rmse: float = 0.0
    undetermined: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def motion_between(scan: Scan, previous: Scan, T_predicted: Tensor, seed: int) -> Motion:
    """The motion T_previous_scan: near a prediction (4, 4), or anywhere if it is not to be found there."""
    T_local = previous.T_local_given @ T_predicted @ scan.T_given_local
    search = Search(scan, previous, Knowledge(T_local))
    search.weigh("icp", _from_coarse_to_fine(search, T_local)[None])
    answer, origin = search.answer(), "icp"
    if not _fits(answer):  # it may have stopped
        search.weigh("icp", _from_coarse_to_fine(search, previous.T_local_given @ scan.T_given_local)[None])
        answer = search.answer()
    if not _fits(answer) and (found := _searched(search, seed)) is not None:
        answer, origin = found, "search"
    return _motion(answer, origin, T_predicted, previous)


def unsure_information(size: float) -> Tensor:
    """(6, 6) of a motion of which next to nothing is known, between scans of a size."""
    sigmas = torch.tensor([UNSURE_ANGLE] * 3 + [UNSURE_SHARE * (size or 1.0)] * 3, dtype=torch.float64)
    return sigmas.square().reciprocal().diag()


def _from_coarse_to_fine(search: Search, T_start: Tensor) -> Tensor:
    rough = search.rough
    scales = coarse_to_fine(rough.spacing, LEVELS, REACH, kernel=lambda edge: Tukey(REACH * edge))
    clouds = rough.source.points, rough.target.points, rough.source.normals, rough.target.normals
    return icp(*clouds, initial=T_start, scales=scales).T_target_source


def _searched(search: Search, seed: int) -> Answer | None:
    """What `register` would find without a prediction, if it is content with it."""
    for opinion in plan("auto"):
        search.weigh(opinion.origin, opinion.propose(search.source, search.target, search.knowledge, seed))
        answer = search.answer()
        if _fits(answer):
            return answer
    return None


def _fits(answer: Answer) -> bool:
    """Whether nothing speaks against it but directions that the geometry leaves open, which no search can close."""
    return not reservations(replace(answer.evidence, open_directions=0))


def _motion(answer: Answer, origin: str, T_predicted: Tensor, previous: Scan) -> Motion:
    fits, is_open = _fits(answer), len(answer.open_directions) > 0
    if is_open:
        answer = _predicted_where_open(answer)
    result = answer.result({})
    T, warnings = result.T_target_source, list(result.warnings)
    if not fits and result.fitness < LEAST_FITNESS:
        T, origin = T_predicted, "predicted"
        warnings.append("the motion is that of constant velocity")
    elif is_open:
        warnings.append(f"{'; '.join(result.undetermined)}: there the motion is that of constant velocity")
    information = result.information if fits else unsure_information(previous.size)
    confident = fits and not is_open
    return Motion(
        T, information, origin, confident, result.fitness, result.plane_rmse, result.undetermined, tuple(warnings)
    )


def _predicted_where_open(answer: Answer) -> Answer:
    """The answer with the prediction's value along each direction that the pairs do not see."""
    visibility = answer.fit.visibility
    to_prediction = left_difference(answer.search.knowledge.T_initial, answer.T)
    local = visibility.motions @ to_prediction
    along = visibility.open.mT @ (visibility.open @ local)
    return replace(answer, T=left_step(answer.T, visibility.steps @ along))
