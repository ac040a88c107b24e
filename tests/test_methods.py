"""Methods by name: all of one contract, with settings that are checked, and reasons where one is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from p2plane import se3
from p2plane.cli import main
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import rotation_error
from p2plane.methods import METHODS, available, build_method, method, require
from p2plane.networks.registry import CONFIGS, MODELS
from p2plane.networks.weights import save_model, shipped_models

QUICK = {"go-icp": {"cells": 16, "max_points": 60}}


def needs_what_it_needs(name: str) -> None:
    reason = available()[name]
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str) -> None:
    needs_what_it_needs(name)
    shape = SyntheticShapes("test", categories=["chair"], shapes_per_category=1, points=300)[0]
    T_true = se3.exp(torch.tensor([0.02, -0.05, 0.04, 0.01, 0.02, -0.01]))
    source, normals = (torch.full((2, 310, 3), torch.nan) for _ in range(2))
    source[:, :300], normals[:, :300] = shape.points, shape.normals
    mask = source.isfinite().all(-1)
    clouds = source, se3.apply(T_true, source), normals, se3.rotate(T_true, normals)
    generator = torch.Generator().manual_seed(0)
    build = method(name, **QUICK.get(name, {}))
    result = build(*clouds, source_mask=mask, target_mask=mask, generator=generator)
    assert result.T_target_source.shape == (2, 4, 4)
    assert result.T_target_source.dtype == torch.float32
    assert result.converged.shape == result.energy.shape == (2,)
    error = rotation_error(result.T_target_source, T_true.expand(2, 4, 4)).max()
    if name == "identity":
        assert torch.equal(result.T_target_source, torch.eye(4).expand(2, 4, 4))
    else:
        assert error < 0.01


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_complete_and_can_be_written_down(name: str) -> None:
    needs_what_it_needs(name)
    settings = build_method(name, {})[1]
    assert json.loads(json.dumps(settings)).keys() == settings.keys()


def test_settings_reach_the_method() -> None:
    built, settings = build_method("icp-plane", {"max_iterations": 1})
    assert settings["max_iterations"] == 1
    assert settings["distance"] == "plane"
    points = SyntheticShapes("test", categories=["chair"], shapes_per_category=1, points=300)[0].points
    T_true = se3.exp(torch.tensor([0.1, -0.2, 0.1, 0.1, 0.0, 0.0]))
    assert int(built(points, se3.apply(T_true, points)).iterations) == 1


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_setting_is_refused_and_the_known_are_listed(name: str) -> None:
    needs_what_it_needs(name)
    with pytest.raises(ValueError, match=r"must have .*settings.*, got 'colour'") as raised:
        method(name, colour=1)
    settings = build_method(name, {})[1]
    assert all(each in str(raised.value) for each in settings)


def test_an_unknown_name_is_refused_and_the_known_are_listed() -> None:
    with pytest.raises(ValueError, match="got 'magic'") as raised:
        method("magic")
    assert all(name in str(raised.value) for name in METHODS)


def test_a_network_without_weights_is_refused() -> None:
    for name in set(MODELS) - set(shipped_models()):
        with pytest.raises(ValueError, match="needs its weights"):
            method(name)


def test_weights_that_come_with_the_package_are_methods_by_name() -> None:
    for name in shipped_models():
        require(name)
        assert not method(name).training


def test_a_weights_file_is_a_method(tmp_path: Path) -> None:
    path = tmp_path / "rpmnet.safetensors"
    network = MODELS["rpmnet"](CONFIGS["rpmnet"]())
    save_model(path, network)
    built = method(path)
    assert isinstance(built, MODELS["rpmnet"])
    assert not built.training
    require(str(path))
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors"):
        require(str(tmp_path / "missing.safetensors"))
    with pytest.raises(ValueError, match="got 'colour'"):
        method(path, colour=1)


def test_what_needs_open3d_says_so_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    reasons = available()
    assert {name for name, reason in reasons.items() if reason is not None} == {"fgr", "ransac"}
    with pytest.raises(ImportError, match=r"pip install 'p2plane\[open3d\]'"):
        require("ransac")
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("pip install 'p2plane[open3d]'") == 1


def test_the_command_lists_every_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(METHODS) <= {line.split(" ")[0] for line in lines}
    assert "p2plane[open3d]" in "\n".join(lines)
