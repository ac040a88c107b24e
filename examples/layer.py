"""The layer inside a training: a network learns which pairs to believe, and is told nothing but the true pose.

python examples/layer.py [steps]
"""

from __future__ import annotations

import sys

import torch

from p2plane import point_to_plane, se3
from p2plane.data.synthetic import SyntheticShapes
from p2plane.training.losses import motion_loss


def main() -> None:
    torch.manual_seed(0)
    shapes = list(SyntheticShapes("train", shapes_per_category=1, points=256))[:16]
    points, normals = (torch.stack([getattr(each, name) for each in shapes]) for name in ("points", "normals"))
    score = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(score.parameters(), lr=1e-2)
    for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        T_true, wrong = se3.random(16), torch.rand(16, 256) < 0.4
        target = se3.apply(T_true, points)
        target = torch.where(wrong[..., None], target[:, torch.randperm(256)], target)
        differences = torch.randn(16, 256, 8).abs() * torch.where(wrong, 1.4, 0.5)[..., None]
        weights = score(differences).squeeze(-1).sigmoid()
        alignment = point_to_plane(points, target, se3.rotate(T_true, normals), weights)
        optimizer.zero_grad()
        loss = motion_loss(alignment.T_target_source, T_true)
        loss.backward()  # through the layer, to the weights, to the network
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:3d}  loss {loss:.5f}  mean weight of wrong pairs {weights[wrong].mean():.2f}")


if __name__ == "__main__":
    main()
