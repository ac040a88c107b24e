"""A packed data set: where it comes from, how it is checked, and how it is unpacked whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import lzma
import re
import shutil
import stat
import struct
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO
from urllib.parse import urlsplit

MAX_UNPACKED_BYTES = 100 * 10**9
"""An archive that claims to hold more than this is refused as a mistake or a trap."""

_DIGITS = {"md5": 32, "sha256": 64}
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    OverflowError,
    RuntimeError,
    ValueError,
)
# OSErrors that a damaged or contradictory archive brings about; all others are about the disk. The bz2 decoder's
# own errors have no number.
_UNREADABLE_ERRNO = {None, errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ}


class BadArchive(Exception):
    """The file is not the archive it should be, or holds what is not safe to unpack."""


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, and the folder it becomes."""

    name: str
    """The folder it unpacks to: letters, digits, dot, dash and underscore."""
    urls: tuple[str, ...]
    """Mirrors, http or https, tried in order."""
    checksum: str | None = None
    """``"md5:..."`` or ``"sha256:..."`` of the zip file, in hexadecimal; None when none is known."""
    bytes: int | None = None
    """Size of the zip file; None when it is not known."""
    licence: str = ""
    """The terms under which the data may be used, in a sentence."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", self.name):
            raise ValueError(f"name must be a plain folder name of letters, digits, '.', '-', '_', got {self.name!r}")
        if not isinstance(self.urls, tuple) or not self.urls:
            raise ValueError(f"urls must be a tuple of at least one address, got {self.urls!r}")
        for url in self.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"urls must be http or https addresses, got {url!r}")
        if self.checksum is not None:
            _check_form(self.checksum)
        if self.bytes is not None and self.bytes <= 0:
            raise ValueError(f"bytes must be positive or None, got {self.bytes}")


def install(archive: Archive, path: Path, folder: Path) -> Path:
    """The folder ``folder / archive.name``, unpacked from the zip file at `path`.

    The file is checked, then unpacked beside its final place and renamed, so the folder is whole as soon as it is
    there. An archive whose only entry is a folder called `name` becomes that folder, as it does when unpacked by hand.

    Raises:
        BadArchive: the file is not the one described, is damaged, or is not safe to unpack.
        OSError: the disk is full or may not be written.
    """
    verify(archive, path)
    final = folder / archive.name
    remove_leftovers(archive, folder)
    with tempfile.TemporaryDirectory(prefix=f".{archive.name}-", dir=folder) as beside:
        # One level further down, because the temporary folder itself is closed to all other users.
        content = Path(beside) / "content"
        content.mkdir()
        unpack(path, content)
        inner = content / archive.name
        _move_into_place(inner if inner.is_dir() and len(list(content.iterdir())) == 1 else content, final)
    return final


def leftovers(archive: Archive, folder: Path) -> Iterator[Path]:
    """The folders that a process is unpacking in, or that one which was killed has left."""
    for path in folder.glob(f".{archive.name}-*"):
        if re.fullmatch(r"[a-z0-9_]{8}", path.name.removeprefix(f".{archive.name}-")):
            yield path


def remove_leftovers(archive: Archive, folder: Path) -> None:
    """Whoever calls this holds the lock: nobody is at them now."""
    for path in leftovers(archive, folder):
        shutil.rmtree(path, ignore_errors=True)


def present(final: Path) -> bool:
    """Whether the data set is there. An empty folder does not count."""
    return final.is_dir() and any(final.iterdir())


def verify(archive: Archive, path: Path) -> None:
    """Raises `BadArchive` unless the file has the size and the checksum that the archive names."""
    size = path.stat().st_size
    if archive.bytes is not None and size != archive.bytes:
        raise BadArchive(f"the file must have {archive.bytes} bytes, got {size}")
    if archive.checksum is not None:
        found = checksum(path, archive.checksum.partition(":")[0])
        if found != archive.checksum.lower():
            raise BadArchive(f"the checksum must be {archive.checksum}, got {found}")


def checksum(path: Path, algorithm: str) -> str:
    """``"algorithm:hexadecimal"`` of a file, as in `Archive.checksum`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


def unpack(path: Path, folder: Path) -> None:
    """Unpacks a zip file into an existing folder, after a look at every entry; errors as for `install`."""
    try:
        with zipfile.ZipFile(path) as bundle:
            entries = bundle.infolist()
            for entry in entries:
                _check_entry(entry)
            _check_total(sum(entry.file_size for entry in entries), folder)
            for entry in entries:
                bundle.extract(entry, folder)  # reads no more than file_size, and compares the CRC
    except _UNREADABLE as error:
        raise BadArchive(f"the zip file cannot be unpacked: {error}") from error
    except OSError as error:
        if error.errno in _UNREADABLE_ERRNO:
            raise BadArchive(f"the zip file cannot be unpacked: {error}") from error
        raise


def require_space(folder: Path, needed: int) -> None:
    """Raises `OSError` unless the disk of a folder has room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.1f} MB are needed, {free / 1e6:.1f} MB are free")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock until the block or the process ends.

    The empty file stays behind: removing it would let two processes hold two locks of the same name.
    """
    with path.open("ab") as file:
        while not _try_lock(file):
            time.sleep(0.1)
        yield


def _check_form(text: str) -> None:
    algorithm, _, digits = text.partition(":")
    if not re.fullmatch(r"[0-9a-fA-F]+", digits) or _DIGITS.get(algorithm) != len(digits):
        raise ValueError(f"checksum must be 'md5:' and 32 or 'sha256:' and 64 hexadecimal digits, got {text!r}")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    # The Windows reading of a name knows both slashes and drives, so it is the stricter one everywhere.
    path = PureWindowsPath(entry.filename)
    if path.drive or path.root or ".." in path.parts:
        raise BadArchive(f"the zip file has an entry outside its folder: {entry.filename!r}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a special file"
        raise BadArchive(f"the zip file must hold files and folders only, got {what}: {entry.filename!r}")


def _check_total(total: int, folder: Path) -> None:
    if total > MAX_UNPACKED_BYTES:
        raise BadArchive(f"the zip file must unpack to at most {MAX_UNPACKED_BYTES} bytes, got {total}")
    if total == 0:
        raise BadArchive("the zip file is empty")
    require_space(folder, total)


def _move_into_place(content: Path, final: Path) -> None:
    try:
        if final.is_dir() and not present(final):
            final.rmdir()  # Windows renames onto nothing, not even an empty folder
        content.rename(final)
    except OSError:
        # Another process was faster, on a file system without locks: its folder is as good as this one.
        if not present(final):
            raise


def _try_lock(file: IO[bytes]) -> bool:
    """False while another holds the lock.

    A file system without locks counts as locked: the checksum, and the CRCs within the zip file, still find a part
    that two processes wrote.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True
