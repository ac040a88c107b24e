"""What the published programs answered, and networks with the weights that they had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import se3
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.published import import_published
from tests.oracles.recipe import fill

FOLDER = Path(__file__).parents[1] / "oracles"


def oracle(name: str) -> dict[str, Tensor]:
    """All arrays of a file, and the true motion as ``T_true`` where there is one."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {key: torch.from_numpy(np.asarray(file[key])) for key in file}
    if "in_R" in arrays:
        arrays["T_true"] = se3.from_rotation_translation(arrays["in_R"], arrays["in_t"])
    return arrays


def clouds(expected: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Source, target and their normals."""
    source, target, source_normals, target_normals = (expected[f"in_{key}"] for key in ("src", "tgt", "src_n", "tgt_n"))
    return source, target, source_normals, target_normals


def with_oracle_weights(network: RegistrationNetwork, seed: Tensor) -> RegistrationNetwork:
    """The network in float64 and evaluation mode; its weights come in the shapes of convolutions, as published."""
    network.double().eval()
    shapes = {
        key: (*each.shape, 1) if each.ndim == 2 else tuple(each.shape) for key, each in network.state_dict().items()
    }
    weights = {key: torch.from_numpy(np.asarray(array)) for key, array in fill(shapes, int(seed)).items()}
    import_published(network, weights)
    return network


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Of a gradient, in the largest entry."""
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def assert_all_close(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-6) -> None:
    """Relative to the largest entry of each tensor; one that is zero but for rounding counts as zero."""
    largest = max(float(each.detach().abs().max()) for each in expected)
    for ours, theirs in zip(found, expected, strict=True):
        scale = max(float(theirs.detach().abs().max()), 1e-6 * largest)
        assert_close(ours, theirs, rtol=0, atol=tolerance * scale)
