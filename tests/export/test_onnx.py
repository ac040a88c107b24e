"""ONNX graphs give the poses of the networks that they were made of, and hold no factorization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from p2plane.cli import main
from p2plane.export import OPSET, export_onnx, largest_difference
from p2plane.networks.deepgmr import DeepGMR
from p2plane.networks.head import HeadConfig
from p2plane.networks.ppf import point_pair_features
from p2plane.networks.tessera import Tessera
from p2plane.networks.weights import save_model
from tests.networks.small import small

onnx = pytest.importorskip("onnx", reason="the extra p2plane[export] is not installed")
pytest.importorskip("onnxscript", reason="the extra p2plane[export] is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra p2plane[export] is not installed")

# PyTorch's exporter warns of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def operators(graph) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


@pytest.mark.parametrize("name", ["dcp-v1"])
def test_poses_of_fifty_pairs_are_pytorchs(name, tmp_path):
    network = small(name, "plane", dtype=torch.float32)
    path = export_onnx(network, tmp_path / "model.onnx", points=48)
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    model = onnx.load(path)
    names = {name for part in (model.graph, *model.functions) for name in operators(part)}
    assert "Loop" in names  # the search
    assert not {each for each in names if any(word in each for word in ("Svd", "Eig", "Cholesky", "Inverse", "Det"))}
    assert {domain.domain for domain in model.opset_import if not domain.domain.startswith("pkg.")} <= {"", "ai.onnx"}
    apart = largest_difference(network, path, pairs=50)
    print(f"{name}: poses differ by at most {apart:.1e}")
    assert apart < 1e-4


class PairFeatures(torch.nn.Module):
    def forward(self, points, normals, others, other_normals):
        return point_pair_features(points, normals, others, other_normals)


def test_parallel_and_opposite_normals_have_pytorchs_angles(tmp_path):
    """ONNX has no atan2, and what stands for it takes -pi for pi."""
    points, z = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 0.0, 1.0])
    arrays = points, z.expand(4, 3), points + z * torch.tensor([[1.0], [-1.0], [0.0], [1.0]]), -z.expand(4, 3)
    network = PairFeatures().eval()
    expected = network(*arrays)
    assert expected[0, 2] == torch.pi
    program = torch.onnx.export(network, arrays, dynamo=True, opset_version=OPSET, verbose=False)
    program.save(tmp_path / "angles.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "angles.onnx", providers=["CPUExecutionProvider"])
    names = (each.name for each in session.get_inputs())
    found = session.run(None, {name: each.numpy() for name, each in zip(names, arrays, strict=True)})[0]
    assert_close(torch.from_numpy(found), expected)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (lambda: DeepGMR(), "DeepGMR cannot be exported to ONNX: .* no plane head"),
        (lambda: Tessera(), "Tessera cannot be exported to ONNX: .* tokens"),
        (lambda: small("rpmnet", "plane", sample_in_evaluation=True), "RPMNet cannot .* at random"),
        (lambda: small("dcp-v1", HeadConfig("plane", gradient="penalty")), "DCP cannot .* gradient='penalty'"),
        (lambda: torch.nn.Linear(3, 3), "model must be a DCP, PRNet or RPMNet, got Linear"),
    ],
)
def test_what_cannot_be_exported_says_why(network, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        export_onnx(network(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["model.pt", "absent/model.onnx", "folder.onnx"])
def test_a_bad_path_is_refused_before_any_work(name, tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ValueError, match=r"^path must "):
        export_onnx(torch.nn.Linear(3, 3), tmp_path / name)


@pytest.mark.parametrize("settings", [{"points": 0}, {"target_points": -1}, {"batch": 1.5}])
def test_bad_sizes_are_refused(settings, tmp_path):
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} must be an integer"):
        export_onnx(small("dcp-v1", "plane"), tmp_path / "model.onnx", **settings)


def test_the_command_says_what_it_cannot_do(tmp_path: Path, capsys):
    save_model(tmp_path / "weights.safetensors", small("rpmnet", "plane", sample_in_evaluation=True))
    assert main(["export", str(tmp_path / "weights.safetensors"), str(tmp_path / "model.onnx")]) == 2
    assert "RPMNet cannot be exported to ONNX" in capsys.readouterr().err
    assert main(["export", "nothing.safetensors", str(tmp_path / "model.onnx")]) == 2


def test_a_graph_with_other_poses_is_not_left_behind(tmp_path: Path, capsys, monkeypatch):
    weights, graph = tmp_path / "model.safetensors", tmp_path / "model.onnx"
    save_model(weights, small("dcp-v1"))
    monkeypatch.setattr("p2plane.export.export_onnx", lambda _model, path, **_: path.write_text("graph") and path)
    for apart in (2.0, float("nan")):
        monkeypatch.setattr("p2plane.export.largest_difference", lambda *_, apart=apart, **__: apart)
        assert main(["export", str(weights), str(graph)]) == 2
        assert "cannot be exported" in capsys.readouterr().err
        assert not graph.exists()
    monkeypatch.setattr("p2plane.export.largest_difference", lambda *_, **__: 1e-6)
    assert main(["export", str(weights), str(graph)]) == 0
    assert graph.exists()
