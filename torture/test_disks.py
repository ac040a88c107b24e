"""Full disks and read-only folders.

A command says what is wrong in one line and ends with 2; a function raises an OSError or a ValueError. Nothing
half-written is left, and what was there before is still there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from p2plane import Cloud, save_cloud, se3
from p2plane.batch.results import read_rows
from p2plane.cli import main
from p2plane.data.archive import Archive
from p2plane.data.download import DownloadError, download
from p2plane.data.io import WRITERS
from p2plane.networks.head import HeadConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.networks.weights import save_model
from p2plane.training import train
from tests.batch.lists import small_motion, write_list
from tests.evaluation.tiny import tiny_weights
from tests.registration.scenes import scan
from tests.training.tiny import as_arguments, assert_equal, tiny, weights
from torture.conftest import Note
from torture.disks import SmallDisk, read_only, small_disk

OLD = b"what was there before"
OUTPUTS = {"-o": "moved.ply", "--transform": "pose.txt", "--report": "page.html", "--picture": "picture.png"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("scans")
    save_cloud(folder / "source.ply", Cloud(se3.apply(small_motion(0), scan("room", 0))))
    save_cloud(folder / "target.ply", Cloud(scan("room", 1)))
    return [str(folder / "source.ply"), str(folder / "target.ply")]


@pytest.fixture(scope="module")
def network() -> RPMNet:
    return RPMNet(RPMNetConfig(head=HeadConfig("point"), test_rounds=1))


@pytest.fixture
def refused(capfd: pytest.CaptureFixture) -> Callable[..., str]:
    """A function that runs a command which must end with 2 and one line of ours; that line."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        code = main(arguments)
        said = capfd.readouterr().err
        assert code == 2, f"ended with {code}: {said}"
        assert said.startswith("p2plane: ")
        assert said.count("\n") == 1, said
        return said.strip()

    return run


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".filler")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("option", OUTPUTS)
def test_register_on_a_full_disk(option: str, disk: SmallDisk, scans: list[str], refused: Callable, note: Note) -> None:
    out = disk.path / OUTPUTS[option]
    out.write_bytes(OLD)
    disk.fill(0)
    said = refused("register", *scans, "--method", "initial", option, str(out))
    assert "No space left" in said or "too large" in said
    assert contents(disk.path) == {out.name: OLD}
    note(
        f"`register {option}` on a full disk", f"`{_short(said, disk.path)}`, exit code 2; the older file is untouched"
    )


@pytest.mark.parametrize("option", OUTPUTS)
def test_register_into_a_read_only_folder(
    option: str, tmp_path: Path, scans: list[str], refused: Callable, note: Note
) -> None:
    out = _old_file(tmp_path / "locked", OUTPUTS[option])
    with read_only(out.parent):
        said = refused("register", *scans, "--method", "initial", option, str(out))
    assert contents(out.parent) == {out.name: OLD}
    note(f"`register {option}` into a read-only folder", f"`{_short(said, tmp_path)}`, exit code 2, before any work")


@pytest.mark.parametrize("suffix", WRITERS)
def test_clouds(suffix: str, disk: SmallDisk, tmp_path: Path, note: Note) -> None:
    points = torch.rand(50_000, 3, dtype=torch.float64)
    cloud = Cloud(points, torch.nn.functional.normalize(points - 0.5, dim=-1))
    out = _old_file(tmp_path / "locked", f"cloud{suffix}")
    with read_only(out.parent), pytest.raises((OSError, ValueError)):
        save_cloud(out, cloud)
    assert contents(out.parent) == {out.name: OLD}
    full = disk.path / out.name
    full.write_bytes(OLD)
    disk.fill(8192)
    with pytest.raises((OSError, ValueError)) as caught:
        save_cloud(full, cloud)
    assert contents(disk.path) == {out.name: OLD}
    note(
        f"`save_cloud` of {suffix} to a full disk, and to a read-only folder",
        f"`{type(caught.value).__name__}`; the older file is untouched, nothing half-written",
    )


def test_weights(disk: SmallDisk, tmp_path: Path, network: RPMNet, note: Note) -> None:
    out = _old_file(tmp_path / "locked", "own.safetensors")
    with read_only(out.parent), pytest.raises(OSError, match=r"Read-only|Permission"):
        save_model(out, network)
    assert contents(out.parent) == {out.name: OLD}
    full = disk.path / out.name
    full.write_bytes(OLD)
    disk.fill(8192)
    with pytest.raises(OSError, match=r"No space left|too large"):
        save_model(full, network)
    assert contents(disk.path) == {out.name: OLD}
    note(
        "`save_model` to a full disk, and to a read-only folder",
        "`OSError`; the older file is untouched, nothing half-written",
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_batch(ending: str, disk: SmallDisk, tmp_path: Path, refused: Callable, note: Note) -> None:
    (tmp_path / "pairs").mkdir()
    pairs, out = write_list(tmp_path / "pairs", 12), disk.path / f"many.{ending}"
    arguments = ("batch", str(pairs), "--method", "initial", "--processes", "1", "-o")
    assert main([*arguments, str(tmp_path / "alone.csv")]) == 0
    disk.fill(8192)
    said = refused(*arguments, str(out))
    left = contents(disk.path)
    assert set(left) <= {"many.json", f"many.{'partial.' if ending == 'parquet' else ''}csv"}
    disk.free()
    assert main([*arguments, str(out)]) == 0
    assert list(read_rows(out)) == list(read_rows(tmp_path / "alone.csv"))
    note(
        f"`batch` into .{ending}, and the disk is full after some rows",
        f"`{_short(said, disk.path)}`, exit code 2; once there is room the same command goes on, and each row is there",
    )


def test_evaluation(disk: SmallDisk, tmp_path: Path, refused: Callable, note: Note) -> None:
    out = disk.path / "tiny.csv"
    arguments = ["evaluate", "--method", str(tiny_weights(tmp_path)), "--data", "synthetic-cpu", "--pairs", "30"]
    arguments += ["--points", "64", "--batch", "3", "--processes", "1", "--out"]
    assert main([*arguments, str(tmp_path / "alone.csv")]) == 0
    disk.fill(8192)
    said = refused(*arguments, str(out))
    disk.free()
    assert main([*arguments, str(out)]) == 0
    assert _without_times(out) == _without_times(tmp_path / "alone.csv")
    note(
        "`evaluate`, and the disk is full after some rows",
        f"`{_short(said, disk.path)}`, exit code 2; once there is room the same command goes on, and each row is there",
    )


def test_training(disk: SmallDisk, tmp_path: Path, refused: Callable, note: Note) -> None:
    folder, changes = disk.path / "run", ("checkpoint.steps=1", "budget.steps=16")
    arguments = ("train", *as_arguments(*changes), "--out", str(folder))
    filling = threading.Thread(target=_fill_after_step, args=(disk, folder, 5))
    filling.start()
    said = refused(*arguments)
    filling.join()
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert kept
    assert all(name.endswith(".ckpt") for name in kept)
    disk.free()
    assert main(arguments) == 0
    train(tiny(*changes), tmp_path / "alone")
    assert_equal(weights(folder), weights(tmp_path / "alone"))
    note(
        "`train`, and the disk is full after some steps",
        f"`{_short(said, disk.path)}`, exit code 2; checkpoints are whole, and once there is room the same command "
        "ends with the weights of an undisturbed run",
    )


def test_training_that_would_not_fit(disk: SmallDisk, refused: Callable, note: Note) -> None:
    if not disk.mounted:
        pytest.skip("no disk can be mounted here")
    disk.fill(1 << 20)
    said = refused("train", *as_arguments(), "--out", str(disk.path / "run"))
    note("`train` on a disk with too little room", f"`{_short(said, disk.path)}`, exit code 2, before the first step")


@pytest.fixture
def one_shot(scans: list[str], network: RPMNet, tmp_path: Path) -> dict[str, list[str]]:
    """Commands that write once, at their end; what they write to is left out."""
    save_model(tmp_path / "own.safetensors", network)
    return {
        "odometry": ["odometry", str(Path(scans[0]).parent), "-o"],
        "demo": ["demo", "--out"],
        "export": ["export", str(tmp_path / "own.safetensors"), "--points", "32", "--check", "0"],
    }


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("command", ["odometry", "demo", "export"])
def test_other_commands(
    command: str, disk: SmallDisk, tmp_path: Path, refused: Callable, note: Note, one_shot: dict[str, list[str]]
) -> None:
    name = "net.onnx" if command == "export" else "out"
    out = _old_file(tmp_path / "locked", "old.txt")
    with read_only(out.parent):
        refused(*one_shot[command], str(out.with_name(name)))
    assert contents(out.parent) == {out.name: OLD}
    disk.fill(0)
    said = refused(*one_shot[command], str(disk.path / name))
    assert "No space left" in said or "too large" in said
    assert not any(contents(disk.path).values())
    note(
        f"`{command}` on a full disk, and into a read-only folder",
        f"`{_short(said, disk.path)}`, exit code 2; nothing half-written",
    )


@pytest.mark.parametrize("command", ["batch", "evaluate", "train", "reproduce"])
def test_long_work_in_a_read_only_folder(
    command: str, tmp_path: Path, refused: Callable, note: Note, scans: list[str]
) -> None:
    out = _old_file(tmp_path / "locked", "old.csv")
    arguments = {
        "batch": ("batch", str(Path(scans[0]).parent), "-o", str(out.with_name("many.csv")), "--method", "initial"),
        "evaluate": ("evaluate", "--method", "icp", "--data", "synthetic-cpu", "--out", str(out.with_name("icp.csv"))),
        "train": ("train", *as_arguments(), "--out", str(out.with_name("run"))),
        "reproduce": ("reproduce", "overhead", "--scale", "smoke", "--results", str(out.with_name("results"))),
    }
    with read_only(out.parent):
        said = refused(*arguments[command])
    assert contents(out.parent) == {out.name: OLD}
    note(f"`{command}` into a read-only folder", f"`{_short(said, tmp_path)}`, exit code 2, before any work")


def test_download_into_a_read_only_folder(tmp_path: Path, note: Note) -> None:
    out = _old_file(tmp_path / "locked", "old.zip")
    archive = Archive("shapes", ("http://127.0.0.1:9/shapes.zip",))
    with read_only(out.parent), pytest.raises((DownloadError, OSError)) as caught:
        download(archive, out.parent)
    assert contents(out.parent) == {out.name: OLD}
    note("download into a read-only folder", f"`{type(caught.value).__name__}`; nothing is written")


def _fill_after_step(disk: SmallDisk, folder: Path, step: int) -> None:
    end = time.monotonic() + 60
    while not list((folder / "checkpoints").glob(f"step-{step:09d}.ckpt")) and time.monotonic() < end:
        time.sleep(0.002)
    disk.fill(0)


def _old_file(folder: Path, name: str) -> Path:
    folder.mkdir()
    (folder / name).write_bytes(OLD)
    return folder / name


def _without_times(path: Path) -> list[list[str]]:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    times = lines[0].index("seconds")
    return [line[:times] + line[times + 1 :] for line in lines]


def _short(said: str, folder: Path) -> str:
    return said.replace(str(folder), "…")
