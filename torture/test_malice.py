"""Files that attack.

Code in a file must not run, and nothing may be written outside the folder that was asked for.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

from p2plane.cli import main
from p2plane.data.archive import BadArchive, install
from p2plane.data.download import Archive, DownloadError, download
from p2plane.data.io import load_cloud
from p2plane.networks.published import PUBLISHED, load_published
from p2plane.networks.weights import load_model
from p2plane.registration.summary import load_pose
from p2plane.training import train
from tests.data.mutations import little_memory, mutate
from tests.data.test_download import Server, serve, zipped
from tests.training.tiny import as_arguments, tiny
from torture.conftest import Note
from torture.test_files import COUNT, MEMORY


class Bomb:
    """An object that makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def pickled(content: Any) -> bytes:
    return pickle.dumps(content)


def torch_saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def torch_saved_in_the_old_way(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


FORMS: dict[str, Callable[[Any], bytes]] = {
    "a plain pickle": pickled,
    "a PyTorch file": torch_saved,
    "a PyTorch file of the old kind": torch_saved_in_the_old_way,
}

LOADERS: dict[str, Callable[[Path], object]] = {
    "load_model": load_model,
    **{f"load_published({name!r})": partial(load_published, name) for name in PUBLISHED},
}


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Made by code that runs from a file."""
    return tmp_path / "code has run"


@pytest.mark.parametrize("form", FORMS)
def test_the_bomb_works(form: str, tmp_path: Path, mark: Path) -> None:
    """Where somebody trusts the file; so that the tests below can fail."""
    (tmp_path / "bomb").write_bytes(FORMS[form]({"weights": Bomb(mark)}))
    if FORMS[form] is pickled:
        pickle.loads((tmp_path / "bomb").read_bytes())
    else:
        torch.load(tmp_path / "bomb", weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loader", LOADERS)
def test_weights_with_code(loader: str, form: str, tmp_path: Path, mark: Path, note: Note) -> None:
    for suffix in (".safetensors", ".pth"):
        path = tmp_path / f"bomb{suffix}"
        path.write_bytes(FORMS[form]({"state_dict": Bomb(mark)}))
        with pytest.raises(ValueError, match="bomb"):
            LOADERS[loader](path)
    assert not mark.exists()
    note(f"`{loader}` of {form} with code in it", "`ValueError` that names the file; the code does not run")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", ["train --set init", "evaluate --method", "export"])
def test_commands_on_weights_with_code(
    command: str, form: str, tmp_path: Path, mark: Path, note: Note, capfd: pytest.CaptureFixture
) -> None:
    path = tmp_path / "bomb.safetensors"
    path.write_bytes(FORMS[form]({"state_dict": Bomb(mark)}))
    arguments = {
        "train --set init": ["train", *as_arguments(f"init={path}"), "--out", str(tmp_path / "run")],
        "evaluate --method": [
            *("evaluate", "--method", str(path), "--data", "synthetic-cpu"),
            *("--out", str(tmp_path / "out.csv")),
        ],
        "export": ["export", str(path), str(tmp_path / "out.onnx")],
    }
    assert main(arguments[command]) == 2
    assert not mark.exists()
    assert capfd.readouterr().err.count("\n") == 1
    note(f"`{command}` with {form} with code in it", "one line, exit code 2; the code does not run")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["in place of all", "beside the state"])
def test_resumed_from_a_checkpoint_with_code(form: str, place: str, tmp_path: Path, mark: Path, note: Note) -> None:
    train(tiny("budget.steps=4", "checkpoint.steps=2"), tmp_path / "run")
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        good = torch.load(checkpoint, weights_only=True)
        content = Bomb(mark) if place == "in place of all" else good | {"callbacks": Bomb(mark)}
        checkpoint.write_bytes(FORMS[form](content))
    with pytest.raises(ValueError, match="must be readable"):
        train(tiny("budget.steps=8", "checkpoint.steps=2"), tmp_path / "run")
    assert not mark.exists()
    note(
        f"a training resumed from {form} with code in it, {place}",
        "`ValueError` that names the checkpoints; the code does not run",
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays_with_code(suffix: str, tmp_path: Path, mark: Path, note: Note) -> None:
    path, bombs = tmp_path / f"bomb{suffix}", np.array([[Bomb(mark)] * 3] * 4, dtype=object)
    if suffix == ".npy":
        np.save(path, bombs, allow_pickle=True)
        with pytest.raises(ValueError, match="bomb"):
            load_pose(path)
    else:
        np.savez(path, points=bombs)
    with pytest.raises(ValueError, match="bomb"):
        load_cloud(path)
    path.write_bytes(pickled(Bomb(mark)))
    with pytest.raises(ValueError, match="bomb"):
        load_cloud(path)
    assert not mark.exists()
    note(f"clouds and poses in {suffix} files with code in them", "`ValueError` that names the file; nothing runs")


TRAPS = {
    "`../` in front": "../outside.txt",
    "`../` in the middle": "shapes/../../outside.txt",
    "many `../`": "../" * 40 + "tmp/p2plane-outside.txt",
    "an absolute name": "/tmp/p2plane-outside.txt",
    "backslashes": "..\\outside.txt",
    "a drive": "C:\\outside.txt",
    "a share": "\\\\server\\outside.txt",
    "a symbolic link": "link",
    "a named pipe": "pipe",
}
KINDS = {"link": stat.S_IFLNK | 0o777, "pipe": stat.S_IFIFO | 0o666}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("by_hand", [False, True], ids=["from the web", "put there by hand"])
def test_archives(
    trap: str, by_hand: bool, server: Server, tmp_path: Path, note: Note, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    content, folder = _trap(TRAPS[trap]), tmp_path / "deep" / "data"
    folder.mkdir(parents=True)
    address = server.page("shapes.zip", partial(serve, body=content))
    if by_hand:
        (folder / "shapes.zip").write_bytes(content)
    before = _names(tmp_path)
    with pytest.raises(DownloadError, match="zip file"):
        download(Archive("shapes", (address,)), folder, progress=False)
    assert _names(tmp_path) - before <= {"deep/data/.shapes.lock"}
    assert not Path("/tmp/p2plane-outside.txt").exists()
    if not by_hand:
        note(f"an archive that has an entry with {trap}", "`DownloadError`; not one file of it is unpacked")


def test_archives_mutated_and_cut(tmp_path: Path, note: Note) -> None:
    good, path, refused = (
        zipped({f"shape{index}.bin": bytes(50 * [index]) for index in range(20)}),
        tmp_path / "a.zip",
        0,
    )
    broken = [mutate(good, seed) for seed in range(COUNT)] + [good[: len(good) * share // 40] for share in range(40)]
    for content in broken:
        path.write_bytes(content)
        with TemporaryDirectory(dir=tmp_path) as folder, little_memory(MEMORY):
            try:
                install(Archive("shapes", ("http://nowhere",)), path, Path(folder))
            except BadArchive:
                refused += 1
                assert not list(Path(folder).iterdir())
        assert _names(tmp_path) == {"a.zip"}
    note(
        f"an archive: {COUNT} mutations, and cut at 40 places",
        f"{refused} refused, {len(broken) - refused} unpacked; nothing half-unpacked, nothing outside",
    )


@pytest.mark.parametrize("claim", [10, 10**12])
def test_archives_that_lie_about_their_size(claim: int, tmp_path: Path, note: Note) -> None:
    """A gigabyte of zeros in a megabyte, with another number in its headers."""
    path = tmp_path / "bomb.zip"
    path.write_bytes(_bomb(claim))
    with little_memory(MEMORY), pytest.raises(BadArchive, match="zip file"):
        install(Archive("shapes", ("http://nowhere",)), path, tmp_path)
    assert _names(tmp_path) == {"bomb.zip"}
    note(f"an archive whose gigabyte of zeros claims to be {claim:,} bytes", "`BadArchive`; nothing is left of it")


def _bomb(claim: int, size: int = 1 << 30) -> bytes:
    buffer, block = io.BytesIO(), bytes(1 << 20)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        with bundle.open("zeros.bin", "w", force_zip64=True) as entry:
            for _ in range(size // len(block)):
                entry.write(block)
        bundle.infolist()[
            0
        ].file_size = claim  # the directory at the end, which is what unpackers go by, is written now
    return buffer.getvalue()


def _trap(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("good.txt", "good")
        entry = zipfile.ZipInfo("x")
        entry.filename = name  # the constructor would clean it
        entry.external_attr = KINDS.get(name, stat.S_IFREG | 0o644) << 16
        bundle.writestr(entry, "/tmp")
        bundle.writestr("link/outside.txt" if name == "link" else "other.txt", "other")
    return buffer.getvalue()


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
