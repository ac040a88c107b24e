"""Broken, lying and huge files of every format.

Each is read as a finite cloud, or refused with a `CloudFileError` that names it: no other exception, no hang, and no
memory for what is not there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors import SafetensorError

from p2plane.data.io import READERS, CloudFileError, load_cloud
from p2plane.networks.weights import load_model
from tests.data.mutations import little_memory, mutate, with_checksums
from tests.data.samples import MESHES, SAMPLES
from tests.data.test_io_fuzz import assert_survives, hang
from tests.evaluation.tiny import tiny_weights
from torture.conftest import Note

COUNT = int(os.environ.get("P2PLANE_FUZZ", "500"))
MEMORY = 3 << 30  # bytes beyond what the process has
MANY = 10**12
HOLE = 40 << 30  # bytes of a file that is nearly all hole

LIARS: dict[str, bytes] = {
    ".ply": f"ply\nformat binary_little_endian 1.0\nelement vertex {MANY}\nproperty float x\nproperty float y\n"
    "property float z\nend_header\n".encode(),
    ".pcd": f"VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {MANY}\nHEIGHT 1\n"
    f"POINTS {MANY}\nDATA binary\n".encode(),
    ".pts": f"{MANY}\n".encode(),
    ".npy": b"\x93NUMPY\x01\x00v\x00"
    + f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({MANY}, 3), }}".encode().ljust(117)
    + b"\n",
    ".off": f"OFF\n{MANY} {MANY} 0\n".encode(),
    ".stl": bytes(80) + struct.pack("<I", 2**32 - 1),
}


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, hang)
    yield
    signal.signal(signal.SIGALRM, before)


def sample(name: str, folder: Path) -> bytes:
    try:
        return SAMPLES[name][1](folder)
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")


def outcomes(name: str, folder: Path, broken: Callable[[int], bytes], count: int) -> tuple[int, int]:
    """How many of the files were refused, and how many read."""
    path, read = folder / f"broken{SAMPLES[name][0]}", 0
    with little_memory(MEMORY):
        for seed in range(count):
            path.write_bytes(broken(seed))
            try:
                read += assert_survives(path, 10 if name in MESHES and seed % 2 else None)
            except BaseException as error:
                raise AssertionError(f"file {seed} of {name}: {type(error).__name__}: {error}") from error
    return count - read, read


@pytest.mark.parametrize("name", SAMPLES)
def test_mutated_and_cut(name: str, tmp_path: Path, note: Note) -> None:
    good = sample(name, tmp_path)
    heal = with_checksums if SAMPLES[name][0] == ".e57" else bytes
    shift = random.Random(name).randrange(10**6)  # others than those of the tests
    refused, read = outcomes(name, tmp_path, lambda seed: heal(mutate(good, shift + seed)), COUNT)
    cuts = [len(good) * share // 40 for share in range(40)]
    refused_cuts, read_cuts = outcomes(name, tmp_path, lambda place: good[: cuts[place]], len(cuts))
    note(
        f"{name}: {COUNT} mutations, and cut at {len(cuts)} places",
        f"{refused} mutations refused, {read} read as finite clouds; {refused_cuts} cuts refused, {read_cuts} read",
    )


@pytest.mark.parametrize("suffix", LIARS)
def test_headers_that_claim_too_much(suffix: str, tmp_path: Path, note: Note) -> None:
    path = tmp_path / f"liar{suffix}"
    path.write_bytes(LIARS[suffix] + bytes(1000))
    with little_memory(MEMORY), pytest.raises(CloudFileError, match="liar") as caught:
        load_cloud(path)
    claim = "4e+09 triangles" if suffix == ".stl" else f"{MANY:.0e} points"  # as far as its 32 bits go
    note(f"{suffix} whose header claims {claim}", f"`{str(caught.value).replace(str(tmp_path), '…')}`")


@pytest.mark.parametrize("suffix", READERS)
def test_a_file_of_forty_gigabytes(suffix: str, tmp_path: Path, note: Note) -> None:
    """All hole behind what a header claims; the disk holds next to nothing of it."""
    path = tmp_path / f"huge{suffix}"
    with path.open("wb") as file:
        file.write(LIARS.get(suffix, b""))
        file.truncate(HOLE)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("files cannot have holes here")
    signal.alarm(60)
    try:
        with little_memory(MEMORY), pytest.raises(CloudFileError, match="huge") as caught:
            load_cloud(path)
    finally:
        signal.alarm(0)
        path.unlink()
    note(f"{suffix} of 40 GB, all zeros", f"`{str(caught.value).replace(str(tmp_path), '…')}`")


def test_weights_mutated_and_cut(tmp_path: Path, note: Note) -> None:
    good, path, read = tiny_weights(tmp_path).read_bytes(), tmp_path / "broken.safetensors", 0
    for seed in range(COUNT):
        path.write_bytes(mutate(good, seed))
        try:
            with little_memory(MEMORY):
                load_model(path)
            read += 1
        except ValueError:
            pass
        except BaseException as error:
            raise AssertionError(f"mutation {seed}: {type(error).__name__}: {error}") from error
    note(f"weights: {COUNT} mutations", f"{COUNT - read} refused with a `ValueError`, {read} read")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"config": "{}"[:1]}, "settings that are no JSON"),
        ({"config": "[1, 2]"}, "settings that are a list"),
        ({"config": json.dumps({"feature_dim": "many"})}, "a width that is a word"),
        ({"config": json.dumps({"feature_dim": -1})}, "a negative width"),
        ({"config": json.dumps({"feature_dim": 10**9})}, "a width of a thousand million"),
        ({"config": json.dumps({"head": 3})}, "a head that is a number"),
        ({"config": None}, "no settings"),
        ({"notes": None}, "no notes"),
        ({"notes": "x"}, "notes that are no JSON"),
    ],
)
def test_weights_whose_header_lies(change: dict, what: str, tmp_path: Path, note: Note) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    path = tiny_weights(tmp_path)
    with safe_open(path, "pt") as file:
        header = file.metadata() | change
    save_file(load_file(path), path, {name: value for name, value in header.items() if value is not None})
    with little_memory(MEMORY), pytest.raises(ValueError, match="tiny") as caught:
        load_model(path)
    assert not isinstance(caught.value, SafetensorError)
    note(f"weights with {what} in the header", "`ValueError` that names the file")
