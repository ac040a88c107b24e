"""Compares methods on pairs with a known answer: how far off, and how often nearly right.

python examples/evaluate.py [pairs] [method ...]
"""

from __future__ import annotations

import sys

import torch

from p2plane.data.pair import collate
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import isotropic_summary, rotation_error
from p2plane.methods import method


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    pairs = PairDataset(SyntheticShapes("test"), "cpu-noisy")
    batch = collate([pairs[index * (len(pairs) // count)] for index in range(count)])
    clouds = batch.source, batch.target, batch.source_normals, batch.target_normals
    print("method        mean angle  mean length  within 5 degrees")
    for name in sys.argv[2:] or ("identity", "icp-plane", "register", "tessera"):
        with torch.no_grad():
            T = method(name)(*clouds, generator=torch.Generator().manual_seed(0)).T_target_source
        errors = isotropic_summary(T, batch.T_target_source)
        near = (rotation_error(T, batch.T_target_source).rad2deg() < 5).float().mean()
        print(f"{name:12s} {errors['angle_mean_deg']:8.2f}    {errors['length_mean']:8.4f}     {near:7.0%}")


if __name__ == "__main__":
    main()
