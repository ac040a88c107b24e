"""Clouds of many points go through the layer block by block, which changes nothing but the memory that it takes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import point_to_distribution, point_to_plane, point_to_point
from p2plane.solve import channels


def inputs(batch: int, count: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    source = torch.randn(batch, count, 3, generator=random, dtype=torch.float64)
    normals = torch.nn.functional.normalize(source / torch.tensor([1.0, 2.0, 3.0]), dim=-1)
    target = source + 0.05 * torch.randn(source.shape, generator=random, dtype=torch.float64) + 0.2
    weights = torch.rand(batch, count, generator=random, dtype=torch.float64)
    mask = torch.rand(batch, count, generator=random) > 0.2
    return {"source": source, "target": target, "normals": normals, "weights": weights, "mask": mask}


def poses_and_gradients(distance: str) -> list[torch.Tensor]:
    data = inputs(3, 250)
    names = ("source", "target", "weights") if distance == "point" else ("source", "target", "normals", "weights")
    leaves = [data[name].requires_grad_() for name in names]
    source, target, normals, weights, mask = data.values()
    if distance == "point":
        alignment = point_to_point(source, target, weights, mask)
    elif distance == "plane":
        alignment = point_to_plane(source, target, normals, weights, mask)
    else:
        W = normals[..., :, None] * normals[..., None, :] + 0.1 * torch.eye(3, dtype=torch.float64)
        alignment = point_to_distribution(source, target, W, weights, mask)
    T = alignment.T_target_source
    upstream = torch.randn(T.shape, generator=torch.Generator().manual_seed(1), dtype=T.dtype)
    return [T.detach(), *torch.autograd.grad((T * upstream).sum(), leaves)]


@pytest.mark.parametrize("distance", ["point", "plane", "distribution"])
@pytest.mark.parametrize("at_once", [100, 300, 600])
def test_blocks_give_what_the_whole_gives(distance, at_once, monkeypatch):
    whole = poses_and_gradients(distance)
    monkeypatch.setattr(channels, "POINTS_AT_ONCE", at_once)  # blocks of points, of pairs, of several pairs
    for block, expected in zip(poses_and_gradients(distance), whole, strict=True):
        assert_close(block, expected, rtol=1e-9, atol=1e-12)
