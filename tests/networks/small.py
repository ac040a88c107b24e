"""Matching networks of every kind, small enough for tests, and pairs for them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from p2plane import se3, so3
from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PairDataset, PairSettings
from p2plane.data.synthetic import SyntheticShapes
from p2plane.networks.dcp import DCP, DCPConfig
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.head import HeadConfig
from p2plane.networks.prnet import PRNet, PRNetConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig

NAMES = ("dcp-v1", "dcp-v2", "prnet", "rpmnet")
HEADS = ("point", "plane")
EMBEDDING: dict[str, Any] = {"neighbors": 6, "widths": (8, 8, 16), "feature_dim": 32, "heads": 2, "hidden": 48}


def small(name: str, head: str | HeadConfig = "point", *, dtype: torch.dtype = torch.float64, **settings: Any):
    """A network with random weights, and the running statistics of some clouds, in evaluation mode."""
    config = head if isinstance(head, HeadConfig) else HeadConfig(head)
    return copy.deepcopy(_small(name, config, tuple(settings.items()))).to(dtype)


@cache
def _small(name: str, head: HeadConfig, settings: tuple[tuple[str, Any], ...]) -> RegistrationNetwork:
    torch.manual_seed(0)
    network: RegistrationNetwork
    if name.startswith("dcp"):
        pointer = {"dcp-v1": "identity", "dcp-v2": "transformer"}[name]
        network = DCP(DCPConfig(**({"pointer": pointer, "head": head} | EMBEDDING | dict(settings))))
    elif name == "prnet":
        own = {"head": head, "keypoints": 24, "temperature_hidden": 16, "train_rounds": 2, "test_rounds": 2}
        network = PRNet(PRNetConfig(**(own | EMBEDDING | dict(settings))))
    else:
        own = {"head": head, "feature_dim": 16, "parameter_dim": 8, "test_rounds": 2, "neighbor_radius": 0.5}
        return RPMNet(RPMNetConfig(**(own | dict(settings)))).double().eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 2:
                weight.normal_(0, (2 / weight.shape[1]) ** 0.5)  # large enough for features that tell points apart
        if isinstance(network, PRNet):  # away from the smallest temperature, where a match has hardly any gradient
            network.temp_net.nn[9].get_parameter("bias").add_(1.0)
    _settle(network.double())
    return network.eval()


@torch.no_grad()
def _settle(network: DCP | PRNet) -> None:
    """Give BatchNorm running statistics; with those of a new network, all points would be matched with the same few."""
    batch = shape_pairs()
    for _ in range(30):
        for cloud, normals in ((batch.source, batch.source_normals), (batch.target, batch.target_normals)):
            network.train().emb_nn(cloud, normals if network.config.normal_features else None)


@cache
def shape_pairs(
    batch: int = 4,
    points: int = 48,
    *,
    dtype: torch.dtype = torch.float64,
    max_angle_deg: float = 10.0,
    shared: float = 0.5,
    noise: float = 0.01,
) -> PairBatch:
    """Pairs of built-in shapes that share some of their points, in random order, moved a little."""
    settings = PairSettings(
        points=points,
        shared=shared,
        crop="none",
        noise=noise,
        max_angle_deg=max_angle_deg,
        max_translation=max_angle_deg / 200,
    )
    pairs = PairDataset(SyntheticShapes("train", shapes_per_category=1, points=2 * points), settings)
    return collate([pairs[5 * index] for index in range(batch)]).to(dtype)


def inputs(batch: PairBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a network takes, without masks."""
    return batch.source, batch.target, batch.source_normals, batch.target_normals


def motions(batch: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """(B, 4, 4) of about half a radian and a third of a unit."""
    generator = torch.Generator().manual_seed(seed)
    R = so3.exp(0.5 * torch.randn(batch, 3, generator=generator, dtype=dtype))
    return se3.from_rotation_translation(R, 0.3 * torch.randn(batch, 3, generator=generator, dtype=dtype))
