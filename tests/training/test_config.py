"""A config says what it means: unknown names, wrong types and contradictions raise before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from p2plane.cli import main
from p2plane.networks.registry import MODELS
from p2plane.training.config import load_settings, settings_from
from p2plane.training.files import packaged_configs, read_config, to_toml, with_changes
from p2plane.training.schedule import OptimizerSettings, ScheduleSettings

MINIMAL = {"model": {"name": "rpmnet"}, "loss": "rpmnet", "data": {"name": "synthetic"}, "budget": {"steps": 1}}


@pytest.mark.parametrize("name", [name for name in packaged_configs() if not name.startswith("tessera")])
def test_a_packaged_config_is_read_and_written_back_as_it_was(name: str, tmp_path: Path) -> None:
    settings = load_settings(name)
    (tmp_path / "again.toml").write_text(to_toml(settings.values()))
    assert load_settings(tmp_path / "again.toml") == settings


def test_there_is_a_config_for_every_learned_row_of_the_paper() -> None:
    rows = ["dcp-v1", "dcp-v2-point", "prnet-point", "rpmnet-point", "deepgmr", "pointnetlk"]
    rows += ["dcp-v2-plane", "prnet-plane", "rpmnet-plane"]
    assert {row + data for row in rows for data in ("", "-unseen", "-icl-nuim")} <= set(packaged_configs())
    for row in rows:
        settings = load_settings(row)
        assert settings.budget.epochs == 100
        assert settings.data[0].protocol == "cpu"
        assert load_settings(f"{row}-unseen").data[0].half == "first"
        assert load_settings(f"{row}-icl-nuim").data[0].pairs.normals == "estimated"
        if row.endswith("plane"):
            assert settings.model.config.head.head == "plane"
            assert (settings.optimizer.name, settings.optimizer.lr) == ("adam", 1e-4)
            assert (settings.schedule.every, settings.schedule.factor) == (10, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.lrr=1", "optimizer.lrr is unknown .did you mean 'lr'.*weight_decay"),
        ("bach_size=1", "bach_size is unknown .did you mean 'batch_size'"),
        ("optimizer.lr=fast", "optimizer.lr must be a number, got 'fast'"),
        ("batch_size=2.5", "batch_size must be an integer"),
        ("batch_size=0", "batch_size must be at least 1"),
        ("devices=3", "batch_size must be a multiple of devices"),
        ("model.name=rpmnett", "model.name 'rpmnett' is unknown .did you mean 'rpmnet'"),
        ("model.neighbours=3", "model.neighbours is unknown .did you mean 'neighbors'"),
        ("model.head.head=line", "model.head: head must be one of"),
        ("loss=rpm", "loss.name 'rpm' is unknown"),
        ("loss.discont=1", "loss"),
        ("data.kep=3", "data.kep is unknown .did you mean 'keep'"),
        ("data.keep=2000", "data: keep must be at most points"),
        ("data.protocol=dcp", "as published"),
        ("data.name=folder", "folder must go with"),
        ("data=[]", "data must hold at least one kind"),
        ("schedule.name=linear", "schedule: name must be one of"),
        ("budget.steps=none", "budget: there must be positive epochs, steps or minutes"),
        ("validation.by=beauty", "validation: by must be one of"),
        ("seed=-1", "seed must be at least 0"),
        ("nonsense", "key=value"),
        ("optimizer.lr.x=1", "optimizer.lr.x must name a setting in a table"),
        ("init=7", "init must be the name of a weights file"),
    ],
)
def test_what_is_wrong_is_named(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_settings("smoke", [change])


def test_a_config_that_lacks_something_says_what(tmp_path: Path) -> None:
    for name in MINIMAL:
        with pytest.raises(ValueError, match=f"must have {name}"):
            settings_from({key: value for key, value in MINIMAL.items() if key != name})
    with pytest.raises(ValueError, match="did you mean 'smoke'"):
        load_settings("smok")
    with pytest.raises(FileNotFoundError, match=r"no config file .*missing\.toml"):
        load_settings(tmp_path / "missing.toml")
    (tmp_path / "broken.toml").write_text("seed = = 1")
    with pytest.raises(ValueError, match="must be TOML"):
        load_settings(tmp_path / "broken.toml")


def test_a_config_extends_others_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('seed = 1\nbatch_size = 2\n[model]\nname = "dcp"\nhidden = 8')
    (tmp_path / "b.toml").write_text('extends = "a.toml"\nbatch_size = 3\nmodel.hidden = 16')
    (tmp_path / "c.toml").write_text('extends = ["a.toml", "b.toml"]\nthreads = 2')
    assert read_config(tmp_path / "c.toml") == {
        "seed": 1,
        "batch_size": 3,
        "threads": 2,
        "model": {"name": "dcp", "hidden": 16},
    }
    (tmp_path / "a.toml").write_text('extends = "c.toml"')
    with pytest.raises(ValueError, match="must not extend itself"):
        read_config(tmp_path / "c.toml")


def test_changes_reach_tables_and_lists() -> None:
    values = with_changes({"data": [{"points": 1}, {"points": 2}]}, ["data.1.points=512", "a.b=[1, 2]", "c=text"])
    assert values == {"data": [{"points": 1}, {"points": 512}], "a": {"b": [1, 2]}, "c": "text"}
    with pytest.raises(ValueError, match=r"data\.2\.points must have a number below 2"):
        with_changes({"data": [{}, {}]}, ["data.2.points=1"])


def test_a_mix_of_pairs_is_filled_part_by_part() -> None:
    kinds = [{"name": "synthetic", "noise": 0.01, "weight": 3}, {"name": "synthetic", "protocol": "rpmnet-crop"}]
    settings = settings_from(MINIMAL | {"data": kinds})
    assert settings.data[0].pairs is not None
    assert settings.data[0].pairs.noise == 0.01
    assert settings.data[0].pairs.shapes == 3
    assert settings.data[1].pairs is None
    kinds[1]["pointss"] = 1
    with pytest.raises(ValueError, match=r"data\.1\.pointss is unknown"):
        settings_from(MINIMAL | {"data": kinds})


def test_schedules() -> None:
    halved = ScheduleSettings("step", every=10, factor=0.5).factors(steps_per_epoch=7, total_steps=None)
    assert [halved(step) for step in (0, 69, 70, 139, 140)] == [1, 1, 0.5, 0.5, 0.25]
    cosine = ScheduleSettings("cosine", warmup=4, final=0.1).factors(1, 104)
    assert [cosine(step) for step in (0, 1, 3, 4)] == [0.25, 0.5, 1, 1]
    assert cosine(54) == pytest.approx(0.55)
    assert cosine(104) == cosine(200) == pytest.approx(0.1)
    assert ScheduleSettings().factors(1, None)(10**6) == 1
    with pytest.raises(ValueError, match="cosine must know its end"):
        ScheduleSettings("cosine").factors(1, None)


def test_tikhonov_goes_into_the_gradient_of_adam_and_not_of_adamw() -> None:

    ends = {}
    for name in ("adam", "adamw"):
        weight = torch.nn.Parameter(torch.tensor([2.0]))
        optimizer = OptimizerSettings(name, lr=0.1, weight_decay=0.5).build([weight])
        weight.grad = torch.tensor([-1.0])  # which 0.5 * 2 cancels
        optimizer.step()
        ends[name] = weight.item()
    assert ends["adam"] == 2.0
    assert ends["adamw"] == pytest.approx(2.0 * (1 - 0.1 * 0.5) + 0.1, rel=1e-5)


def test_the_command_line_names_a_bad_key_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "smoke", "--set", "optimizer.lrr=1", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("p2plane: optimizer.lrr is unknown")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_every_network_has_small_presets() -> None:
    names = {load_settings(name).model.name for name in packaged_configs() if name.endswith("-small")}
    assert {"dcp", "prnet", "rpmnet", "deepgmr", "pointnetlk"} <= names <= set(MODELS)
