"""Poses in files: read back as they were written, and refused by name where they are no pose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p2plane.registration.summary import load_pose
from tests.batch.lists import small_motion


def test_a_text_file_may_have_comments_and_empty_lines(tmp_path: Path) -> None:
    rows = [" ".join(map(repr, row)) for row in small_motion(0).tolist()]
    (tmp_path / "pose.txt").write_text("# T_target_source\n\n" + "  # a row\n".join(rows) + "\n")
    assert load_pose(tmp_path / "pose.txt").tolist() == small_motion(0).tolist()


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i8"])
def test_an_array_of_any_numbers_is_read(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "pose.npy", np.asfortranarray(np.diag([1, -1, -1, 1]).astype(dtype)))
    assert load_pose(tmp_path / "pose.npy").tolist() == np.diag([1.0, -1.0, -1.0, 1.0]).tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pose.txt", b""),
        ("pose.txt", b"1 2 3\n4 5\n"),
        ("pose.txt", b"\xff\xfe"),
        ("pose.json", b"[" * 100_000),
        ("pose.json", b'{"T": []}'),
        ("pose.json", b"[[1" + b"0" * 400 + b"]]"),
        ("pose.npy", b"\x93NUMPY\x01\x00\x04\x00{'de"),
        ("pose.npy", b""),
        ("pose.npy", bytes(2 << 20)),
    ],
)
def test_what_is_no_pose_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} must hold a 4x4 matrix"):
        load_pose(tmp_path / name)
