"""Disks that are full, and disks that cannot be written, even by root."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE = 64 << 20  # bytes of a small disk


@dataclass
class SmallDisk:
    """A folder that can run out of room; where nothing can be mounted, files that can grow no further do instead."""

    path: Path
    mounted: bool

    def fill(self, room: int) -> None:
        """Leave so many bytes, rounded up to pages, or no more than that to each file."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            return
        free = shutil.disk_usage(self.path).free
        with (self.path / ".filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, max(1, free - room))

    def free(self) -> None:
        """Make room again."""
        if not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (self.path / ".filler").unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """A disk of a few megabytes."""
    folder.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder))
    if not mounted and resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("neither can a disk be mounted nor the size of files be limited here")
    disk = SmallDisk(folder, mounted)
    try:
        yield disk
    finally:
        disk.free()
        if mounted:
            _unmount(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder, with all that is in it, cannot be written meanwhile."""
    if not _mount("--bind", str(folder), str(folder)):
        with _without_permission(folder):
            yield
        return
    try:
        if not _mount("-o", "remount,ro,bind", str(folder)):
            pytest.skip("a folder cannot be made read-only here")
        yield
    finally:
        _unmount(folder)


@contextmanager
def _without_permission(folder: Path) -> Iterator[None]:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere, and nothing can be mounted here")
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(0o755)


def _mount(*arguments: str) -> bool:
    if os.geteuid() != 0:
        return False
    with suppress(FileNotFoundError):
        return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
    return False


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True, capture_output=True)
