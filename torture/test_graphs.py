"""ONNX graphs of all networks.

Those of several rounds take a minute to write; `make test` has DCP-v1's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from p2plane.export import export_onnx, largest_difference
from tests.networks.small import small
from torture.conftest import Note

pytest.importorskip("onnxscript", reason="the extra p2plane[export] is not installed")
pytest.importorskip("onnxruntime", reason="the extra p2plane[export] is not installed")

pytestmark = [
    pytest.mark.limit(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # PyTorch's exporter warns of itself
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("name", ["dcp-v2", "rpmnet", "prnet"])
def test_poses_of_fifty_pairs_are_pytorchs(name: str, tmp_path: Path, note: Note) -> None:
    network = small(name, "plane", dtype=torch.float32)
    path = export_onnx(network, tmp_path / "model.onnx", points=48)
    apart = largest_difference(network, path, pairs=50)
    note(
        f"{name} with the plane head and random weights, exported, on 50 pairs of 48 points in onnxruntime",
        f"entries of poses differ from PyTorch's by at most {apart:.1e}",
    )
    assert apart < 1e-4
