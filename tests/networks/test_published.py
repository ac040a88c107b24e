"""The authors' checkpoints: right ones load, wrong ones are named key by key."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.testing import assert_close

from p2plane.networks.head import HeadConfig
from p2plane.networks.pointnetlk import PointNetLK, PointNetLKConfig
from p2plane.networks.published import CONSTANTS, PUBLISHED, import_published, load_published, read_published
from p2plane.networks.registry import CONFIGS, MODELS
from tests.data.real import ROOT

DCP_V1 = ROOT / "weights" / "dcp_v1.t7"
POINTNETLK = ROOT / "weights" / "pointnetlk_revisited_modelnet40_model_best.pth"

# How many entries the published files have, without constants, and some of them as they are there.
ENTRIES = {
    "dcp-v1": (30, {"emb_nn.conv1.weight": (64, 6, 1, 1), "emb_nn.bn5.running_var": (512,)}),
    "dcp-v2": (
        76,
        {
            "emb_nn.conv5.weight": (512, 512, 1, 1),
            "pointer.model.encoder.layers.0.feed_forward.w_1.weight": (1024, 512),
            "pointer.model.decoder.layers.0.src_attn.linears.3.bias": (512,),
            "pointer.model.decoder.layers.0.sublayer.2.norm.a_2": (512,),
        },
    ),
    "prnet": (
        99,
        {
            "emb_nn.conv2.weight": (64, 128, 1, 1),
            "attention.model.decoder.norm.b_2": (512,),
            "temp_net.nn.7.num_batches_tracked": (),
            "temp_net.nn.9.weight": (1, 128),
        },
    ),
    "rpmnet": (
        52,
        {
            "weights_net.prepool.12.weight": (1024, 128, 1),
            "weights_net.postpool.6.bias": (2,),
            "feat_extractor.prepool.0.weight": (96, 10, 1, 1),
            "feat_extractor.postpool.6.weight": (96, 96, 1),
        },
    ),
    "deepgmr-rri": (44, {"backbone.encoder.0.0.weight": (64, 80, 1), "backbone.decoder.3.bias": (16,)}),
    "deepgmr-xyz": (44, {"backbone.encoder.0.0.weight": (64, 3, 1), "backbone.decoder.0.0.weight": (512, 2048, 1)}),
    "pointnetlk": (21, {"ptnet.mlp1.0.weight": (64, 3, 1), "ptnet.mlp3.1.running_mean": (1024,)}),
}


def built(name: str) -> torch.nn.Module:
    published = PUBLISHED[name]
    return MODELS[published.model](CONFIGS[published.model](**published.settings))


def as_authors_write(network: torch.nn.Module, name: str) -> dict[str, torch.Tensor]:
    """Random weights in the names and shapes of a published file."""
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for key, value in network.state_dict().items():
        shape = ENTRIES[name][1].get(key, tuple(value.shape))
        filled = torch.rand(shape, generator=generator)
        weights[key] = filled if value.is_floating_point() else torch.tensor(7)
    return weights | {"head.reflect": torch.eye(3)}


def small() -> PointNetLK:
    return PointNetLK(PointNetLKConfig(widths=(4, 5, 6)))


def test_every_network_has_its_published_names():
    assert set(ENTRIES) == set(PUBLISHED)
    for name, (count, some) in ENTRIES.items():
        ours = built(name).state_dict()
        assert len(ours) == count, name
        assert not set(CONSTANTS) & set(ours)
        for key, shape in some.items():
            assert ours[key].shape == torch.Size(shape) or (*ours[key].shape, 1, 1)[: len(shape)] == shape


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_in_the_published_form_loads(name, tmp_path):
    expected = as_authors_write(built(name), name)
    torch.save(expected, tmp_path / "weights.pth")
    network = load_published(name, tmp_path / "weights.pth")
    assert not network.training
    for key, value in network.state_dict().items():
        assert_close(value, expected[key].reshape(value.shape), rtol=0, atol=0)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda weights: {"state_dict": weights, "optimizer": {"lr": 0.1}, "step": 3},
        lambda weights: {"model": weights, "epoch": 1},
        lambda weights: {f"module.{name}": value for name, value in weights.items()},
        lambda weights: {f"module.acpnet.{name}": value for name, value in weights.items()},
        lambda weights: {"state_dict": {f"acpnet.{name}": value for name, value in weights.items()}},
    ],
)
def test_wrappers_are_taken_off(wrap):
    torch.manual_seed(0)
    theirs, ours = small(), small()
    import_published(ours, wrap(theirs.state_dict() | {"head.temperature": torch.ones(1)}))
    assert_close(ours.state_dict(), theirs.state_dict())


def test_counters_of_batches_may_be_missing():
    weights = {name: value for name, value in small().state_dict().items() if "num_batches" not in name}
    import_published(small(), weights)


def test_precision_is_that_of_the_network():
    network = small().double()
    import_published(network, small().state_dict())
    assert all(each.dtype == torch.float64 for each in network.parameters())


def test_wrong_weights_are_named_one_by_one_and_change_nothing():
    network = small()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    weights = small().state_dict()
    weights["ptnet.mlp4.0.weight"] = weights.pop("ptnet.mlp1.0.weight")
    weights["ptnet.mlp2.0.weight"] = torch.zeros(5, 3, 1)
    weights["ptnet.mlp2.0.bias"] = "five"
    expected = (
        r"weights must fit PointNetLK, but 1 missing: ptnet\.mlp1\.0\.weight; 1 unexpected: ptnet\.mlp4\.0\.weight; "
        r"2 of another shape: ptnet\.mlp2\.0\.weight \(5, 3, 1\) instead of \(5, 4\), "
        r"ptnet\.mlp2\.0\.bias str instead of \(5,\)"
    )
    with pytest.raises(ValueError, match=expected):
        import_published(network, weights)
    assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_of_many_wrong_names_the_first_and_their_number_are_told():
    with pytest.raises(ValueError, match=r"18 missing: (ptnet\S+, ){5}\.\.\.; 1 unexpected: emb_nn\.conv1\.weight"):
        import_published(small(), {"emb_nn.conv1.weight": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="18 missing"):
        import_published(small(), {})


def test_a_convolution_wider_than_one_point_is_refused():
    weights = small().state_dict()
    weights["ptnet.mlp2.0.weight"] = torch.zeros(5, 4, 3)
    with pytest.raises(ValueError, match=r"1 of another shape: ptnet\.mlp2\.0\.weight \(5, 4, 3\) instead of \(5, 4\)"):
        import_published(small(), weights)


class Harmful:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.mark.parametrize(
    "content", [b"", b"no weights", pickle.dumps({"a": Harmful()}, protocol=2)], ids=["empty", "text", "code"]
)
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_other_files_are_refused_and_not_run(content, name, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} must be a PyTorch file of plain weights, but"):
        read_published(path)
    assert capsys.readouterr().out == ""


def test_cut_off_files_and_objects_are_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(small().state_dict(), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="must be a PyTorch file of plain weights"):
        read_published(path)
    torch.save({"network": Harmful()}, path)
    with pytest.raises(ValueError, match="must be a PyTorch file of plain weights"):
        read_published(path)
    torch.save([torch.zeros(3)], path)
    with pytest.raises(ValueError, match="must hold a dictionary of weights, got list"):
        read_published(path)


def test_bad_names_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of \('dcp-v1', .*\), got 'dcp'"):
        load_published("dcp", tmp_path / "weights.pth")
    with pytest.raises(FileNotFoundError, match="there is no weights file"):
        load_published("dcp-v1", tmp_path / "weights.pth")


@pytest.mark.skipif(not DCP_V1.is_file(), reason="P2PLANE_DATA holds no weights/dcp_v1.t7")
def test_the_authors_dcp_loads_with_either_head():
    network = load_published("dcp-v1", DCP_V1)
    other = load_published("dcp-v1", DCP_V1, head=HeadConfig("plane"))
    assert other.config.head.head == "plane"
    assert_close(other.state_dict(), network.state_dict(), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"weights must fit DCP, but 46 missing: pointer\."):
        load_published("dcp-v2", DCP_V1)
    with pytest.raises(ValueError, match=r"emb_nn\.conv1\.weight \(64, 6, 1, 1\) instead of \(64, 12\)"):
        load_published("dcp-v1", DCP_V1, normal_features=True)


@pytest.mark.skipif(not POINTNETLK.is_file(), reason=f"P2PLANE_DATA holds no weights/{POINTNETLK.name}")
def test_the_authors_pointnetlk_loads():
    network = load_published("pointnetlk", POINTNETLK)
    expected = read_published(POINTNETLK)
    for key, value in network.state_dict().items():
        assert_close(value, expected[key].reshape(value.shape), rtol=0, atol=0)
