"""Trains RPMNet with the plane head on built-in shapes, and measures it.

python examples/train.py                       some minutes
python examples/train.py budget.steps=2000     longer; any setting of a config may stand here
"""

from __future__ import annotations

import sys
from pathlib import Path

from p2plane.training import load_settings, train

CONFIG = """
loss = "rpmnet"
batch_size = 4
workers = 0
gradient_clip = 1.0
model = {name = "rpmnet", feature_dim = 32, parameter_dim = 16, neighbors = 16, head = {head = "plane"}}
data = {name = "synthetic", shapes_per_category = 20, protocol = "cpu", points = 256, keep = 192}
optimizer = {name = "adamw", lr = 1e-3}
budget = {steps = 300}
validation = {pairs = 32, every = 100, held_out = 0.2}
"""


def main() -> None:
    Path("example.toml").write_text(CONFIG)
    result = train(load_settings("example.toml", sys.argv[1:]), "runs/example")
    print(f"{result.steps} steps in {result.minutes:.1f} minutes; the best weights are {result.weights}")
    print({name: round(value, 4) for name, value in result.best.items()})


if __name__ == "__main__":
    main()
