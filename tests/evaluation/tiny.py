"""A network so small that it runs in a moment; nothing is right about its answers but that they are always the same."""

from __future__ import annotations

from pathlib import Path

import torch

from p2plane.evaluation.worker import Evaluation
from p2plane.networks.head import HeadConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.networks.weights import save_model


def tiny_weights(folder: Path, name: str = "tiny", head: str = "point", seed: int = 0) -> Path:
    """The weights file of a small RPMNet with random weights."""
    torch.manual_seed(seed)
    small = RPMNetConfig(head=HeadConfig(head), feature_dim=8, parameter_dim=8, neighbors=6, test_rounds=1)
    path = folder / f"{name}.safetensors"
    save_model(path, RPMNet(small))
    return path


def tiny_evaluation(weights: Path, **changes: object) -> Evaluation:
    """Thirteen pairs of 48 points, three at once."""
    settings: dict = {"data": "synthetic-cpu", "pairs": 13, "points": 64, "batch": 3} | changes
    return Evaluation(str(weights), **settings)
