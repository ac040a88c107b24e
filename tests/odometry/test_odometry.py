"""Odometry recovers a known path, says what it does not know, and writes files that others can read."""

from __future__ import annotations

import csv
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from p2plane import Cloud, load_cloud, save_cloud, se3, so3
from p2plane.classical.open3d import import_open3d
from p2plane.cli import main
from p2plane.odometry import Step, Trajectory, odometry
from p2plane.odometry.graph import g2o_information, open3d_information, read_g2o
from p2plane.odometry.picture import write_map_picture
from p2plane.odometry.poses import read_kitti, read_matrices, read_tum, vectors_of
from p2plane.odometry.save import save_trajectory
from tests.odometry.series import EMPTY, UNREADABLE, sliding_scans, write_walk
from tests.registration.scenes import motion, scan


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor]:
    folder = tmp_path_factory.mktemp("walk")
    return folder, write_walk(folder)


@pytest.fixture(scope="module")
def trajectory(walk: tuple[Path, Tensor]) -> Trajectory:
    return odometry(walk[0])


@pytest.fixture(scope="module")
def saved(trajectory: Trajectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "new"
    save_trajectory(folder, trajectory, times=[10.5 + index for index in range(len(trajectory))])
    return folder


def test_the_path_is_recovered(walk: tuple[Path, Tensor], trajectory: Trajectory) -> None:
    errors = se3.inverse(walk[1]) @ trajectory.poses
    seen = [step.index for step in trajectory.steps if step.index not in (UNREADABLE, EMPTY)]
    assert [step.name for step in trajectory.steps] == [f"scan{index}.ply" for index in range(8, 15)]
    assert so3.log(errors[seen, :3, :3]).norm(dim=-1).max() < np.radians(0.3)
    assert errors[seen, :3, 3].norm(dim=-1).max() < 0.015
    assert all(trajectory.steps[index].confident for index in seen)


def test_scans_without_points_are_explained_and_bridged(walk: tuple[Path, Tensor], trajectory: Trajectory) -> None:
    """They stay where constant velocity leads, which is not far off here, and next to nothing is known of them."""
    for index, reason in ((UNREADABLE, "cannot read"), (EMPTY, "at least one finite point")):
        step, after = trajectory.steps[index], trajectory.steps[index + 1]
        assert (step.origin, step.confident) == ("predicted", False)
        assert reason in step.warnings[0]
        assert after.previous == index - 1
        assert (se3.inverse(walk[1][index]) @ step.T_world_scan)[:3, 3].norm() < 0.1
        assert step.information.diagonal().max() < 1e-3 * after.information.diagonal().min()
    assert not trajectory.confident
    assert any("scan 3 (scan11.ply)" in warning for warning in trajectory.warnings)


def test_pose_files_read_back(trajectory: Trajectory, saved: Path) -> None:
    times, poses = read_tum(saved / "tum.txt")
    assert times.tolist() == [10.5 + index for index in range(7)]
    for read in (poses, read_kitti(saved / "kitti.txt"), read_matrices(saved / "matrices.txt")):
        torch.testing.assert_close(read, trajectory.poses, rtol=0, atol=1e-12)
    with (saved / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["origin"] for row in rows] == [step.origin for step in trajectory.steps]
    assert len(load_cloud(saved / "map.ply")) == len(trajectory.map)


def test_g2o_reads_back(trajectory: Trajectory, saved: Path) -> None:
    vertices, edges = read_g2o(saved / "graph.g2o")
    torch.testing.assert_close(torch.stack([vertices[i] for i in range(7)]), trajectory.poses, rtol=0, atol=1e-12)
    for (first, second, T, information), step in zip(edges, trajectory.steps[1:], strict=True):
        assert (first, second) == (step.previous, step.index)
        torch.testing.assert_close(T, se3.inverse(vertices[first]) @ vertices[second], rtol=0, atol=1e-9)
        torch.testing.assert_close(information, g2o_information(step), rtol=1e-9, atol=1e-6)
    (saved / "broken.g2o").write_text("EDGE_SE3:QUAT 0 1 2 3\n")
    with pytest.raises(ValueError, match="line 1"):
        read_g2o(saved / "broken.g2o")


def test_open3d_reads_the_pose_graph(trajectory: Trajectory, saved: Path) -> None:
    try:
        open3d = import_open3d()
    except ImportError as error:
        pytest.skip(str(error))
    graph = open3d.io.read_pose_graph(str(saved / "graph.json"))
    np.testing.assert_allclose([node.pose for node in graph.nodes], trajectory.poses, atol=1e-12)
    for edge, step in zip(graph.edges, trajectory.steps[1:], strict=True):
        assert (edge.source_node_id, edge.target_node_id) == (step.index, step.previous)
        assert edge.uncertain == (not step.confident)
        np.testing.assert_allclose(edge.transformation, step.T_previous_scan, atol=1e-12)
        np.testing.assert_allclose(edge.information, open3d_information(step), rtol=1e-12)


def test_information_is_that_of_what_the_readers_measure() -> None:
    """Finite differences: a step of the pose moves D = Z^-1 T by J; information maps back by the inverse of J."""
    root = torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    T = motion(2)
    step = Step(1, "", T, "icp", 0, T, root @ root.mT)

    def columns(measured: object) -> Tensor:
        h = 1e-6
        moved = [se3.inverse(T) @ _stepped(T, h * unit) for unit in torch.eye(6, dtype=torch.float64)]
        return torch.stack([measured(D) / h for D in moved], dim=1)  # type: ignore[operator]

    for information, measured in (
        (open3d_information(step), se3.log),
        (g2o_information(step), lambda D: vectors_of(D[None])[0, :6]),
    ):
        jacobian = columns(measured)
        torch.testing.assert_close(jacobian.mT @ information @ jacobian, step.information, rtol=1e-4, atol=1e-4)


def _stepped(T: Tensor, step: Tensor) -> Tensor:
    """[exp(omega) R | exp(omega) t + v]."""
    return se3.exp(step) @ T


def test_a_direction_that_is_open_keeps_the_velocity_and_says_so() -> None:
    """Along the corridor nothing is seen. So the motion is none there, as before, while the rest is found."""
    scans, poses = sliding_scans("corridor", 3)
    trajectory = odometry(scans)
    for step, T_true in zip(trajectory.steps[1:], poses[1:], strict=True):
        assert not step.confident
        assert step.undetermined == ("slides along y",)
        assert "slides along y: there the motion is that of constant velocity" in step.warnings
        assert abs(step.T_world_scan[1, 3]) < 0.005
        assert abs(step.T_world_scan[0, 3] - T_true[0, 3]) < 0.01
        assert torch.linalg.eigvalsh(step.information)[0] < 1e-9 * step.information.norm()
        assert step.information[4, 4] < 1e-3 * step.information[3, 3]


def test_what_a_wall_shows_is_known_as_well_as_ever() -> None:
    """Three directions are open. Nothing is searched for, as no search can close them, and the others are found."""
    trajectory = odometry(sliding_scans("wall", 3)[0])
    for step in trajectory.steps[1:]:
        assert step.origin == "icp"
        assert len(step.undetermined) == 3
        assert step.information[1, 1] < 1e-3 * step.information[0, 0]  # turns about the wall's normal
        assert min(step.information[4, 4], step.information[0, 0], step.information[2, 2]) > 1e5


def test_a_jump_is_found_by_searching() -> None:
    T_jump = motion(5)
    scans = [scan("room", 1), scan("room", 2), se3.apply(T_jump, scan("room", 3)), se3.apply(T_jump, scan("room", 4))]
    trajectory = odometry(scans)
    assert [step.origin for step in trajectory.steps] == ["start", "icp", "search", "icp"]
    torch.testing.assert_close(trajectory.poses[3], se3.inverse(T_jump), atol=0.05, rtol=0)
    assert trajectory.confident


def test_scans_are_let_go_and_the_map_stays_small() -> None:
    made = gone = most = 0

    def forget() -> None:
        nonlocal gone
        gone += 1

    def scans() -> Iterator[Cloud]:
        nonlocal made, most
        for index in range(6):
            cloud = Cloud(scan("room", index)[::2])
            made += 1
            weakref.finalize(cloud, forget)
            yield cloud
            del cloud
            gc.collect()
            most = max(most, made - gone)

    trajectory = odometry(scans(), map_points=700)
    assert len(trajectory) == 6
    assert most <= 2
    assert 200 < len(trajectory.map) <= 700


@pytest.mark.parametrize(
    ("scans", "message"),
    [
        (3, "scans must be a folder or many scans"),
        ([torch.rand(99, 3)], "at least two that can be used, got 1 of 1"),
        ([torch.zeros(0, 3), np.full((5, 3), np.nan)], "got 0 of 2"),
        ([torch.rand(99, 3), torch.rand(99, 2)], r"shape \(N, 3\)"),
        (["nowhere.ply", "neither.ply"], "got 0 of 2.*no file nowhere.ply"),
    ],
)
def test_bad_series_are_named(scans: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        odometry(scans)


def test_a_series_may_begin_with_a_bad_scan() -> None:
    points = scan("room", 1)
    trajectory = odometry([torch.zeros(0, 3), points, scan("room", 2)])
    assert [step.previous for step in trajectory.steps] == [None, 0, 1]
    assert [step.confident for step in trajectory.steps] == [False, False, True]
    torch.testing.assert_close(trajectory.poses[2], torch.eye(4, dtype=torch.float64), atol=0.01, rtol=0)


def test_times_and_picture_are_checked(trajectory: Trajectory, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="times must be as many as scans, 7, got 2"):
        save_trajectory(tmp_path, trajectory, times=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"must end with \.png"):
        write_map_picture(tmp_path / "map.jpg", trajectory)


def test_the_command_line_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, out = tmp_path / "scans", tmp_path / "out"
    folder.mkdir()
    for index in range(2):
        save_cloud(folder / f"{index}.npy", scan("room", index))
    (tmp_path / "times.txt").write_text("0.5\n0.75\n")
    assert main(["odometry", str(folder), "-o", str(out), "--times", str(tmp_path / "times.txt"), "--unit", "m"]) == 0
    names = ["graph.g2o", "graph.json", "kitti.txt", "map.ply", "map.png", "matrices.txt", "steps.csv", "tum.txt"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "map.png").read_bytes().startswith(b"\x89PNG")
    assert read_tum(out / "tum.txt")[0].tolist() == [0.5, 0.75]
    assert "2 scans" in capsys.readouterr().out
    (tmp_path / "times.txt").write_text("0.5\n")
    assert main(["odometry", str(folder), "-o", str(out), "--times", str(tmp_path / "times.txt")]) == 2
    assert "time for each of the 2 scans, got 1" in capsys.readouterr().err
