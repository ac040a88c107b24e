"""Our weights files: written, read, changed on the way, and refused where they are wrong."""

from __future__ import annotations

import json
import resource
from dataclasses import asdict

import pytest
import torch
from torch.testing import assert_close

from p2plane.networks import weights
from p2plane.networks.deepgmr import DeepGMR, DeepGMRConfig
from p2plane.networks.head import HeadConfig
from p2plane.networks.pointnetlk import PointNetLK, PointNetLKConfig
from p2plane.networks.registry import CONFIGS, MODELS
from p2plane.networks.weights import config_from, find_model, load_model, read_header, save_model, shipped_models
from p2plane.training.losses import dcp_loss
from tests.networks.small import inputs, shape_pairs, small


def test_every_model_has_its_settings():
    assert list(MODELS) == list(CONFIGS)
    for name, kind in MODELS.items():
        assert isinstance(kind.__init__.__annotations__, dict)
        assert CONFIGS[name]() == CONFIGS[name]()


@pytest.mark.parametrize("name", ["dcp-v1", "dcp-v2", "prnet", "rpmnet"])
def test_a_network_comes_back_as_it_was(name, tmp_path):
    network, batch = small(name, "plane", dtype=torch.float32), shape_pairs(2, dtype=torch.float32)
    save_model(tmp_path / "own.safetensors", network, {"metrics": {"recall": 0.5}, "data": "cpu"})
    again = load_model(tmp_path / "own.safetensors")
    assert not again.training
    assert again.config == network.config
    assert_close(again(*inputs(batch)).T_target_source, network(*inputs(batch)).T_target_source, rtol=0, atol=0)
    header = read_header(tmp_path / "own.safetensors")
    assert header["model"] == name.split("-")[0]
    assert header["notes"] == {"metrics": {"recall": 0.5}, "data": "cpu"}


@pytest.mark.parametrize(
    "network",
    [
        DeepGMR(DeepGMRConfig(encoder_widths=(4, 5), decoder_widths=(6,), components=3)),
        PointNetLK(PointNetLKConfig(widths=(4, 5, 6))),
    ],
    ids=["deepgmr", "pointnetlk"],
)
def test_the_networks_to_compare_with_come_back_too(network, tmp_path):
    save_model(tmp_path / "own.safetensors", network)
    again = load_model(tmp_path / "own.safetensors")
    assert again.config == network.config
    assert_close(again.state_dict(), network.state_dict(), rtol=0, atol=0)


def test_the_head_can_be_another_one(tmp_path):
    path = tmp_path / "own.safetensors"
    network = small("prnet", HeadConfig("point", point_share=0.1), dtype=torch.float32)
    save_model(path, network)
    plane = load_model(path, head="plane", test_rounds=6)
    assert plane.config.head == HeadConfig("plane", point_share=0.1)
    assert plane.config.test_rounds == 6
    assert_close(plane.state_dict(), network.state_dict(), rtol=0, atol=0)
    assert load_model(path, head=HeadConfig("plane")).config.head == HeadConfig("plane")
    paper = load_model(path, head={"head": "plane", "normals": "eigenvector", "gradient": "penalty"})
    assert paper.config.head == HeadConfig("plane", "eigenvector", 0.1, "penalty")


def test_training_goes_on_from_a_file(tmp_path):
    batch = shape_pairs(2, dtype=torch.float32)
    save_model(tmp_path / "own.safetensors", small("dcp-v1", dtype=torch.float32))
    network = load_model(tmp_path / "own.safetensors", head="plane").train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.Adam(network.parameters())
    dcp_loss(network(*inputs(batch)), batch.T_target_source).backward()
    optimizer.step()
    changed = [name for name, value in network.state_dict().items() if not torch.equal(value, before[name])]
    assert set(changed) == set(before)


def test_files_that_come_with_the_package_have_names(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "weights")
    with pytest.raises(FileNotFoundError, match="there is no weights file best; by name, none comes with p2plane"):
        load_model("best")
    (tmp_path / "weights").mkdir()
    for name in ("best", "small"):
        save_model(tmp_path / "weights" / f"{name}.safetensors", small("dcp-v1"))
    assert list(shipped_models()) == ["best", "small"]
    assert find_model("best") == tmp_path / "weights" / "best.safetensors"
    assert load_model("small").config.pointer == "identity"
    assert read_header("small")["model"] == "dcp"
    with pytest.raises(FileNotFoundError, match=r"there is no weights file large; .* with p2plane are best, small"):
        load_model("large")


def test_a_failed_write_leaves_the_older_file(tmp_path):
    path = tmp_path / "own.safetensors"
    save_model(path, small("dcp-v1"))
    content = path.read_bytes()
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_model(path, small("dcp-v1"), {"when": object()})
    with pytest.raises(ValueError, match=r"model must be one of \('dcp', .*\), got Linear"):
        save_model(path, torch.nn.Linear(2, 2))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "own.safetensors"
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="must be a safetensors file, but"):
        load_model(path)
    save_model(path, small("dcp-v1"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"own\.safetensors must"):
        load_model(path)
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="must have the format p2plane-1 and a model of"):
        load_model(path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"feature_dim": 10**7},
            r"must hold the weights of dcp, but .* of another shape: .* instead of \(10000000, 32\)",
        ),
        ({"feature_dim": 10**12, "pointer": "transformer"}, "that can be built, but"),
        ({"pointer": "transformer", "hidden": 10**10}, r"must hold the weights of dcp, but .* missing: pointer\."),
    ],
)
def test_settings_that_ask_for_terabytes_are_refused_before_any_memory_is_taken(settings, reason, tmp_path):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "own.safetensors"
    save_model(path, small("dcp-v1"))
    header = {"format": weights.FORMAT, "model": "dcp", "notes": "{}"}
    config = asdict(small("dcp-v1").config) | settings
    save_file(load_file(path), path, header | {"config": json.dumps(config)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB
    with pytest.raises(ValueError, match=reason):
        load_model(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_any_number_of_blocks_is_refused():
    with pytest.raises(ValueError, match="blocks must be between 0 and 100, got 1000000000"):
        config_from(CONFIGS["tessera"], {"blocks": 10**9})


def test_settings_that_do_not_fit_the_weights_are_named(tmp_path):
    path = tmp_path / "own.safetensors"
    save_model(path, small("dcp-v1"))
    with pytest.raises(ValueError, match=r"1 of another shape: emb_nn\.conv1\.weight \(8, 6\) instead of \(8, 12\)"):
        load_model(path, normal_features=True)
    with pytest.raises(ValueError, match=r"must hold the weights of dcp, but .* 4\d missing: pointer\."):
        load_model(path, pointer="transformer")
    with pytest.raises(ValueError, match=r"DCPConfig must have settings out of .*, got 'colour'"):
        load_model(path, colour="red")
    with pytest.raises(ValueError, match=r"HeadConfig must have settings out of .*, got 'colour'"):
        config_from(CONFIGS["dcp"], {"head": {"colour": "red"}})
