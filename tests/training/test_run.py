"""A training leaves a folder that explains itself, goes on as if it had never stopped, and loses nothing to mishaps."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2plane.networks.weights import load_model, read_header
from p2plane.training import TrainSettings, load_settings, train
from p2plane.training import folder as folders
from p2plane.training import module as modules
from p2plane.training.losses import LOSSES
from tests.training.tiny import assert_equal, columns, tiny, weights

TINY_DCP = ("model={name='dcp', pointer='identity', widths=[4], feature_dim=8, neighbors=4}", "loss=dcp")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed, with all its checkpoints."""
    path = tmp_path_factory.mktemp("alone")
    assert train(tiny("checkpoint.steps=3"), path).finished
    return path


def test_the_folder_of_a_run_explains_itself(alone: Path) -> None:
    assert load_settings(alone / "config.toml") == tiny("checkpoint.steps=3")
    about = json.loads((alone / "run.json").read_text())
    assert about["seed"] == 0
    assert about["torch"] == torch.__version__
    steps = [step for step, loss in columns(alone, "step", "loss") if loss]
    assert steps == [str(step) for step in range(1, 9)]
    measured = [step for step, angle in columns(alone, "step", "validation_angle_mean_deg") if angle]
    assert measured == ["4", "8"]
    assert list((alone / "tensorboard").glob("events.*"))
    assert [path.name for path in folders.RunFolder(alone).checkpoints()] == [
        "step-000000008.ckpt",
        "step-000000006.ckpt",
    ]


def test_the_weights_say_where_they_come_from_and_register(alone: Path) -> None:
    notes = read_header(alone / "last.safetensors")["notes"]
    assert (notes["steps"], notes["seed"], notes["validation"]["pairs"]) == (8, 0, 2)
    assert notes["data"][0]["data"] == "synthetic"
    assert float(notes["validation"]["angle_mean_deg"]) > 0
    rows = dict(row for row in columns(alone, "step", "validation_angle_mean_deg") if row[1])
    best = min(rows, key=lambda step: float(rows[step]))
    assert read_header(alone / "best.safetensors")["notes"]["steps"] == int(best)
    cloud = torch.rand(1, 32, 3)
    assert load_model(alone / "best.safetensors")(cloud, cloud).T_target_source.isfinite().all()


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(alone: Path, tmp_path: Path, monkeypatch: Any) -> None:
    step = modules.TrainingModule.training_step

    def interrupted_at_five(self: Any, *arguments: Any) -> Any:
        if self.trainer.global_step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *arguments)

    monkeypatch.setattr(modules.TrainingModule, "training_step", interrupted_at_five)
    before = signal.getsignal(signal.SIGTERM)
    result = train(tiny(), tmp_path)
    assert not result.finished
    assert result.steps == 5
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    again = train(tiny(), tmp_path)
    assert again.finished
    assert_equal(weights(tmp_path), weights(alone))
    assert_equal(weights(tmp_path, "best"), weights(alone, "best"))
    names = "step", "lr", "loss", "angle_deg", "gradient", "skipped", "validation_angle_mean_deg"
    assert columns(tmp_path, *names) == columns(alone, *names)


def test_a_finished_run_is_left_alone_and_a_longer_budget_goes_on(tmp_path: Path) -> None:
    short, long = tiny("budget.steps=2", "schedule.name=constant"), tiny("budget.steps=4", "schedule.name=constant")
    train(short, tmp_path)
    before = (tmp_path / "last.safetensors").stat().st_mtime_ns
    assert train(short, tmp_path).steps == 2
    assert (tmp_path / "last.safetensors").stat().st_mtime_ns == before
    assert train(long, tmp_path).steps == 4
    train(long, tmp_path / "at once")
    assert_equal(weights(tmp_path), weights(tmp_path / "at once"))


def test_minutes_count_over_resumed_runs(tmp_path: Path, monkeypatch: Any) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr("p2plane.training.keeper.monotonic", lambda: float(next(clock)))  # a second at every look
    steps = []
    for minutes in (0.5, 0.5, 2.0):
        limit = f"budget.minutes={minutes}", "budget.steps=none", "schedule.name=constant", "checkpoint.minutes=1000"
        result = train(tiny(*limit), tmp_path)
        steps.append(result.steps)
        assert 60 * result.minutes == pytest.approx(60 * minutes, abs=15)
    assert steps[0] == steps[1]
    assert 3 * steps[0] < steps[2] < 5 * steps[0]


def test_other_settings_do_not_go_into_the_same_folder(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "run")
    with pytest.raises(ValueError, match=r"optimizer\.lr was 0\.001 and is 0\.5.*--fresh"):
        train(tiny("optimizer.lr=0.5", "budget.steps=9"), tmp_path / "run")
    with pytest.raises(ValueError, match="must hold a checkpoint to resume from"):
        train(tiny(), tmp_path / "nothing", resume=True)
    result = train(tiny("optimizer.lr=0.5", "budget.steps=1"), tmp_path / "run", resume=False)
    assert result.steps == 1
    assert len(columns(tmp_path / "run", "step")) == 2


def test_a_checkpoint_of_another_network_is_refused(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "run")
    other = tiny("model.feature_dim=24", "budget.steps=9")
    folders.RunFolder(tmp_path / "run").write_about(other.values())
    with pytest.raises(ValueError, match=r"must be a checkpoint of rpmnet as set, but model\..* differs"):
        train(other, tmp_path / "run")


def test_a_broken_checkpoint_gives_way_to_the_one_before(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "run")
    newest = folders.RunFolder(tmp_path / "run").checkpoints()[0]
    newest.write_bytes(newest.read_bytes()[:1000])
    assert train(tiny(), tmp_path / "run").steps == 8
    assert_equal(weights(tmp_path / "run"), weights(alone))


def test_what_a_killed_process_left_half_written_is_removed(alone: Path, tmp_path: Path) -> None:
    shutil.copytree(alone, tmp_path / "run")
    halves = [tmp_path / "run" / ".best.safetensors.0.part", tmp_path / "run" / "checkpoints" / ".step.ckpt.part"]
    for path in halves:
        path.write_bytes(b"half")
    train(tiny("checkpoint.steps=3"), tmp_path / "run")
    assert not any(path.exists() for path in halves)


def test_mixed_precision_trains(tmp_path: Path) -> None:
    product = "import torch; half = torch.ones(64, 64, dtype=torch.bfloat16); half @ half"
    if subprocess.run([sys.executable, "-c", product], check=False).returncode != 0:
        pytest.skip("a product of bfloat16 matrices kills PyTorch on this machine: it has AMX in name only")
    assert train(tiny(*TINY_DCP, "precision=bf16-mixed", "budget.steps=2"), tmp_path).skipped == 0


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def test_no_code_is_run_from_a_checkpoint(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    path = folders.RunFolder(tmp_path / "run").checkpoint(3)
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="must be readable"):
        train(tiny(), tmp_path / "run")
    assert not (tmp_path / "evil").exists()


def test_a_full_disk_is_noticed_before_the_first_step_and_later_costs_one_checkpoint(
    alone: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
        with pytest.raises(OSError, match="must have 11 MB free"):
            train(tiny(), tmp_path / "full")

    def no_room(path: Path, content: bytes) -> None:
        if path.name == "step-000000006.ckpt":
            raise OSError(errno.ENOSPC, "No space left on device")
        folders.write_whole(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("p2plane.training.keeper.write_whole", no_room)
        with pytest.raises(RuntimeError, match=r"step 6 .*No space left.*step-000000003\.ckpt"):
            train(tiny("checkpoint.steps=3"), tmp_path / "run")
    assert train(tiny("checkpoint.steps=3"), tmp_path / "run").finished
    assert_equal(weights(tmp_path / "run"), weights(alone))


def test_a_folder_that_cannot_be_written_or_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="must be writable"):
        train(tiny(), tmp_path / "file")
    (tmp_path / "run").mkdir()
    with folders.RunFolder(tmp_path / "run").locked(), pytest.raises(RuntimeError, match="another process trains"):
        train(tiny(), tmp_path / "run")


def test_missing_data_is_noticed_first(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("P2PLANE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="p2plane data download modelnet40"):
        train(load_settings("rpmnet-plane-small"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_steps_without_a_finite_gradient_change_nothing_and_are_counted(tmp_path: Path, monkeypatch: Any) -> None:
    settings = tiny(*TINY_DCP, "budget.steps=3", "validation.every=1", "schedule.name=constant")
    seen: list[dict[str, torch.Tensor]] = []

    def loss(alignment: Any, batch: Any) -> torch.Tensor:
        value = LOSSES["dcp"](alignment, batch)
        return value * float("nan") if len(seen) == 2 else value

    step = modules.TrainingModule.training_step

    def watched(self: Any, *arguments: Any) -> Any:
        seen.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
        self.loss = loss
        return step(self, *arguments)

    monkeypatch.setattr(modules.TrainingModule, "training_step", watched)
    assert train(settings, tmp_path).skipped == 1
    assert_equal(seen[1], seen[2])
    changed = {name for name in seen[0] if not torch.equal(seen[0][name], seen[1][name])}
    assert any("running_mean" in name for name in changed)
    assert not torch.equal(weights(tmp_path)["emb_nn.conv1.weight"], seen[2]["emb_nn.conv1.weight"])
    assert [row[0] for row in columns(tmp_path, "skipped") if row[0]] == ["0", "1", "1"]


def test_a_training_that_only_skips_stops(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(modules, "MOST_SKIPPED", 3)
    monkeypatch.setitem(LOSSES, "rpmnet", lambda alignment, batch: alignment.T_target_source.sum() * float("inf"))
    with pytest.raises(RuntimeError, match=r"3 steps in a row were not finite.*lower optimizer\.lr"):
        train(tiny(), tmp_path)


def test_long_gradients_are_shortened(tmp_path: Path, monkeypatch: Any) -> None:
    lengths = []
    step = torch.optim.AdamW.step

    def watched(self: Any, *arguments: Any, **options: Any) -> Any:
        value = step(self, *arguments, **options)  # the closure inside computes the gradient
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        lengths.append(float(torch.stack([gradient.norm() for gradient in gradients]).norm()))
        return value

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    train(tiny("gradient_clip=0.01", "budget.steps=2"), tmp_path)
    assert lengths == pytest.approx([0.01, 0.01], rel=1e-3)


def test_a_folder_of_clouds_trains_and_weights_can_be_tuned_further(alone: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(6):
        np.savetxt(tmp_path / f"{number}.xyz", random.normal(size=(80, 3)) * [3, 2, 1])
    data = f"data={{name='folder', folder='{tmp_path}', points=32, keep=24, shapes=1, shared=0.5}}"
    settings = tiny(data, f"init={alone / 'best.safetensors'}", "budget.steps=1", "optimizer.lr=1e-9")
    assert train(settings, tmp_path / "run").finished
    before, after = weights(alone, "best"), weights(tmp_path / "run")
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=2e-9)


def test_weights_of_another_network_are_refused(alone: Path, tmp_path: Path) -> None:
    path = alone / "best.safetensors"
    with pytest.raises(ValueError, match="init must hold weights of dcp, got those of rpmnet"):
        tiny(f"init={path}", "model={name='dcp'}")
    with pytest.raises(ValueError, match="init must fit the settings of rpmnet, but size mismatch"):
        train(tiny(f"init={path}", "model.feature_dim=24"), tmp_path)
    with pytest.raises(FileNotFoundError, match="no weights file"):
        tiny(f"init={tmp_path / 'none.safetensors'}")


SMALLER = {
    "dcp-v1-small": ("model.widths=[4, 4]", "model.feature_dim=8"),
    "dcp-v2-plane-small": ("model.widths=[4, 4]", "model.feature_dim=8", "model.hidden=8"),
    "prnet-plane-small": ("model.widths=[4, 4]", "model.feature_dim=8", "model.hidden=8", "model.keypoints=16"),
    "deepgmr-small": ("model.encoder_widths=[8]", "model.decoder_widths=[8]"),
    "pointnetlk-small": ("model.widths=[8, 8, 16]", "model.train_points=24"),
}


@pytest.mark.parametrize("name", SMALLER)
def test_every_network_takes_a_step(name: str, tmp_path: Path) -> None:
    changes = ("data={name='synthetic', shapes_per_category=2, points=48, keep=32}", "validation.held_out=0.5")
    settings = load_settings(name, (*changes, *SMALLER[name], "devices=1", "batch_size=2", "budget.steps=2"))
    settings = load_with(settings, pairs=2)
    result = train(settings, tmp_path)
    assert result.skipped == 0
    first = settings.model.build().state_dict()
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path).values())
    assert any(not torch.equal(first[name], tensor) for name, tensor in weights(tmp_path).items())


def load_with(settings: TrainSettings, pairs: int) -> TrainSettings:
    """The settings with fewer validation pairs."""
    from dataclasses import replace

    return replace(settings, validation=replace(settings.validation, pairs=pairs))
