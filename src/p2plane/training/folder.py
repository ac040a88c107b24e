"""The folder of a run: its settings, its checkpoints, its weights, and one training at a time."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from p2plane.training.files import to_toml

KEPT = 2
"""Checkpoints that stay."""


@dataclass(frozen=True)
class RunFolder:
    """Where everything of a run lies."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings, all of them; `p2plane train` takes the file."""
        return self.path / "config.toml"

    @property
    def about(self) -> Path:
        """Versions and the like."""
        return self.path / "run.json"

    @property
    def log(self) -> Path:
        """The log as a table."""
        return self.path / "log.csv"

    @property
    def best(self) -> Path:
        """The weights that were best in validation."""
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        """The weights at the end."""
        return self.path / "last.safetensors"

    @property
    def tensorboard(self) -> Path:
        """The log for TensorBoard."""
        return self.path / "tensorboard"

    def checkpoints(self) -> list[Path]:
        """All checkpoints, the newest first."""
        return sorted((self.path / "checkpoints").glob("step-*.ckpt"), reverse=True)

    def checkpoint(self, step: int) -> Path:
        """The name of the checkpoint of a step."""
        return self.path / "checkpoints" / f"step-{step:09d}.ckpt"

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that can be read, with its content; None where there is none.

        A ValueError where there are checkpoints and none can be read.
        """
        errors = []
        for path in self.checkpoints():
            try:
                return path, torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:  # whatever a broken file leads to
                errors.append(f"{path.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        if errors:
            raise ValueError(
                f"checkpoints in {self.path} must be readable, but {'; '.join(errors)}; --fresh starts anew"
            )
        return None

    def prepare(self, needed_bytes: int) -> None:
        """Make the folder; an OSError if it cannot be written to or the disk has no room."""
        try:
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            write_whole(self.path / "checkpoints" / "probe", b"probe")
            (self.path / "checkpoints" / "probe").unlink()
            for unfinished in self.path.rglob(".*.part"):
                unfinished.unlink(missing_ok=True)
        except OSError as error:
            raise OSError(f"the run's folder {self.path} must be writable, but {error}") from error
        free = shutil.disk_usage(self.path).free
        if free < needed_bytes:
            raise OSError(
                f"the disk of {self.path} must have {needed_bytes / 1e6:.0f} MB free for checkpoints and weights, "
                f"got {free / 1e6:.0f} MB"
            )

    def clear(self) -> None:
        """Remove what an earlier run left."""
        for path in (self.config, self.about, self.log, self.best, self.last):
            path.unlink(missing_ok=True)
        for name in ("checkpoints", "tensorboard"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def write_about(self, settings: dict[str, Any]) -> None:
        """Settings and versions."""
        write_whole(self.config, to_toml(settings).encode())
        write_whole(self.about, json.dumps({"seed": settings["seed"], **versions()}, indent=2).encode())

    def keep_newest(self) -> None:
        """Remove all checkpoints but the newest two."""
        for path in self.checkpoints()[KEPT:]:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One training at a time; the lock ends with the process, however it ends."""
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        with open(self.path / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RuntimeError(f"another process trains in {self.path}: choose another --out") from error
            yield


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, even if the process is killed or the disk is full."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def as_bytes(content: Any) -> bytes:
    """What `torch.save` would write."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def versions() -> dict[str, Any]:
    """Versions of this package and torch, and the commit, where the package is in a repository."""
    from p2plane import __version__

    return {"version": __version__, "commit": _commit(), "torch": torch.__version__}


@functools.cache
def _commit() -> str | None:
    """The commit of the checkout that this file is tracked in, marked where the checkout differs from it."""
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it is not there, or says no."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
