"""Thousands of broken files of every format: each is read as a finite cloud, or refused with a CloudFileError.

``P2PLANE_FUZZ=10000 pytest tests/data/test_io_fuzz.py`` is the full run; a small one is part of the suite.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from p2plane.data.io import CloudFileError, load_cloud
from tests.data.mutations import little_memory, mutate, with_checksums
from tests.data.samples import MESHES, SAMPLES

COUNT = int(os.environ.get("P2PLANE_FUZZ", "300"))
SECONDS = 20  # after which one small file counts as a hang
MEMORY = 3 << 30  # bytes


def hang(signal_number: int, frame: object) -> None:
    raise AssertionError(f"one file took more than {SECONDS} seconds")


def assert_survives(path: Path, points_from_mesh: int | None) -> bool:
    """Whether the file was read; it must be refused in the one way, or hold what a cloud promises."""
    signal.alarm(SECONDS)
    try:
        cloud = load_cloud(path, points_from_mesh=points_from_mesh)
    except CloudFileError as error:
        assert str(path) in str(error)  # noqa: PT017
        return False
    finally:
        signal.alarm(0)
    assert len(cloud) > 0
    assert cloud.points.isfinite().all()
    if cloud.normals is not None:
        length = cloud.normals.norm(dim=-1)
        assert ((length - 1).abs() < 1e-5).logical_or(length == 0).all()
    if cloud.colors is not None:
        assert ((cloud.colors >= 0) & (cloud.colors <= 1)).all()
    return True


@pytest.mark.parametrize("name", SAMPLES)
def test_broken_files_are_refused_or_read(name, tmp_path, capfd):
    suffix, make = SAMPLES[name]
    try:
        good = make(tmp_path)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")
    path = tmp_path / f"broken{suffix}"
    previous = signal.signal(signal.SIGALRM, hang)
    try:
        with little_memory(MEMORY):
            for seed in range(COUNT):
                broken = mutate(good, seed)
                path.write_bytes(with_checksums(broken) if suffix == ".e57" and seed % 4 else broken)
                points_from_mesh = 10 if name in MESHES and seed % 2 else None
                try:
                    assert_survives(path, points_from_mesh)
                except BaseException as error:
                    raise AssertionError(f"mutation {seed} of {name}: {type(error).__name__}: {error}") from error
    finally:
        signal.signal(signal.SIGALRM, previous)
    if suffix != ".laz":  # where a panic in Rust writes to stderr before it becomes an exception
        assert capfd.readouterr() == ("", "")
