"""The command line: what it prints, what it writes, and what its exit codes mean."""

from __future__ import annotations

import json
import stat
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import p2plane
from p2plane import Cloud, load_cloud, register, save_cloud, se3
from p2plane.cli import main
from p2plane.demo.scans import demo_scans
from tests.registration.scenes import motion, scan


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, torch.Tensor]:
    """Two scans of a room in files, and the true motion."""
    folder = tmp_path_factory.mktemp("scans")
    T_moved = motion(4)
    save_cloud(folder / "a.ply", Cloud(se3.apply(T_moved, scan("room", 1))))
    save_cloud(folder / "b.pcd", Cloud(scan("room", 2)))
    return str(folder / "a.ply"), str(folder / "b.pcd"), se3.inverse(T_moved)


def test_register_prints_and_writes_all_that_is_asked_for(files, tmp_path, capsys):
    source, target, T_true = files
    outputs = {name: tmp_path / name for name in ("moved.ply", "T.txt", "all.json", "page.html", "picture.png")}
    arguments = ["-o", str(outputs["moved.ply"]), "--transform", str(outputs["T.txt"])]
    arguments += ["--report", str(outputs["page.html"]), "--picture", str(outputs["picture.png"])]
    assert main(["register", source, target, "--method", "sweep", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "a.ply onto b.pcd: confident" in printed
    assert "\x1b" not in printed  # no colours where nobody looks
    T = torch.from_numpy(np.loadtxt(outputs["T.txt"]))
    torch.testing.assert_close(T, T_true, atol=0.05, rtol=0)
    moved = load_cloud(outputs["moved.ply"]).points.double()
    torch.testing.assert_close(moved, se3.apply(T, load_cloud(source).points.double()), atol=1e-5, rtol=0)
    assert outputs["page.html"].read_text().startswith("<!")
    assert outputs["picture.png"].read_bytes().startswith(b"\x89PNG")


def test_json_holds_the_pose_and_the_doubts(files, tmp_path, capsys):
    source, target, T_true = files
    path = tmp_path / "all.json"
    assert main(["register", source, target, "--method", "sweep", "--json", "--transform", str(path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    torch.testing.assert_close(torch.tensor(printed["T_target_source"], dtype=torch.float64), T_true, atol=0.05, rtol=0)
    assert printed["confident"] is True
    assert printed["warnings"] == []
    written = json.loads(path.read_text())
    assert written["T_target_source"] == printed["T_target_source"]
    # And a pose that was written is a pose to start from.
    assert main(["register", source, target, "--method", "initial", "--initial", str(path), "--json"]) == 0


def test_an_answer_that_is_not_to_be_trusted_has_its_own_exit_code(tmp_path, capsys):
    for name, seed in (("a.xyz", 1), ("b.xyz", 2)):
        np.savetxt(tmp_path / name, scan("wall", seed).numpy())
    code = main(["register", str(tmp_path / "a.xyz"), str(tmp_path / "b.xyz"), "--method", "sweep"])
    printed = capsys.readouterr().out
    assert code == 3
    assert "not confident" in printed
    assert "slides along x" in printed


@pytest.mark.parametrize("broken", ["missing.ply", "empty.ply", "broken.ply", "folder", "picture.jpg"])
def test_a_file_that_cannot_be_read_is_one_line(files, tmp_path, capsys, broken):
    (tmp_path / "empty.ply").write_bytes(b"")
    (tmp_path / "broken.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 9\nend_header\n")
    (tmp_path / "picture.jpg").write_bytes(b"not a cloud")
    (tmp_path / "folder").mkdir()
    output = tmp_path / "out.ply"
    assert main(["register", str(tmp_path / broken), files[1], "-o", str(output)]) == 2
    error = capsys.readouterr().err
    assert broken in error
    assert error.count("\n") == 1
    assert not output.exists()


@pytest.mark.parametrize("option", ["--output", "--transform", "--report", "--picture"])
def test_a_folder_that_is_not_there_is_found_out_before_the_work(files, tmp_path, capsys, option):
    suffix = {"--output": "ply", "--transform": "txt", "--report": "html", "--picture": "png"}[option]
    path = tmp_path / "nowhere" / f"out.{suffix}"
    assert main(["register", files[0], files[1], option, str(path)]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--transform", "pose.doc"], "pose.doc"),
        (["--hold", "rx"], "hold"),
        (["--method", "magic"], "magic"),
        (["--max-points", "0"], "max_points"),
        (["--max-points", "many"], "max-points"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(files, capsys, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["register", files[0], files[1], *arguments]) == 2
    assert message in capsys.readouterr().err


def test_info_says_what_a_file_holds(files, capsys):
    assert main(["info", files[0]]) == 0
    assert "points" in capsys.readouterr().out
    assert main(["info", files[0], "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["points"] == len(load_cloud(files[0]))
    assert facts["normals"] is False


def test_the_demo_recovers_the_motion_and_shows_it(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    degrees = float(printed.split("this is ")[1].split(" degrees")[0])
    assert degrees < 0.5
    assert "confident" in printed
    assert sorted(path.name for path in Path(tmp_path / "demo").iterdir()) == ["page.html", "picture.png"]


def test_the_demo_does_without_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    from_the_truth = partial(register, method="initial", initial=demo_scans()[2])
    monkeypatch.setattr("p2plane.registration.pipeline.register", from_the_truth)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    assert "pip install 'p2plane[view]'" in capsys.readouterr().out
    assert [path.name for path in Path(tmp_path / "demo").iterdir()] == ["page.html"]


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert p2plane.__version__ in capsys.readouterr().out


def test_what_is_wrong_is_one_line_and_the_exit_code_is_two(capsys):
    assert main(["data", "check", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nonsense" in error
    assert main(["no-such-command"]) == 2


def test_an_output_that_cannot_be_written_leaves_what_was_there(files, tmp_path, capsys):
    folder = tmp_path / "out.ply"
    folder.mkdir(mode=stat.S_IRWXU)
    assert main(["register", files[0], files[1], "--method", "sweep", "-o", str(folder)]) == 2
    assert "out.ply" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [folder]
