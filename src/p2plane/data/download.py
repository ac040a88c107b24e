"""Data sets from the web: fetched once, resumed after a cut, checked, and unpacked whole or not at all."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from p2plane.data.archive import (
    Archive,
    BadArchive,
    install,
    leftovers,
    locked,
    present,
    remove_leftovers,
    require_space,
)

__all__ = ["Archive", "DownloadError", "download"]

_BLOCK = 1 << 18
_RETRIES = 4
_PAUSE = 1.0  # seconds before the first retry, doubled for each further one


class DownloadError(RuntimeError):
    """The data set could not be had; the message tells what went wrong with each mirror and what to do by hand."""


class _MirrorError(Exception):
    """What is wrong with a mirror. The next one may do better."""


class _Cut(_MirrorError):
    """The connection failed. What has come stays good."""


def download(archive: Archive, folder: str | Path, *, progress: bool = True, timeout: float = 30.0) -> Path:
    """The folder of a data set, fetched from the web unless it is there already.

    The zip file grows in ``folder/name.zip.part``; a later call goes on where an earlier one was cut. It is checked
    and unpacked to ``folder/name``, which appears all at once. A zip file that was put at ``folder/name.zip`` by hand
    is used first, and stays. When two processes ask for the same archive, one waits for the other.

    Args:
        archive: what to fetch.
        folder: where data sets live; made if it is missing.
        progress: show a bar on stderr when that is a terminal.
        timeout: seconds without a byte after which a connection counts as cut.

    Returns:
        ``folder/name``.

    Raises:
        DownloadError: no mirror gave the archive, or the disk cannot take it.
    """
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, got {timeout}")
    folder = Path(folder)
    final = folder / archive.name
    if present(final):
        _clear(archive, folder)
        return final
    if final.exists() and not final.is_dir():
        raise ValueError(f"{final} must be a folder or not exist, got a file")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(_lock(archive, folder)):
        if not present(final):
            _obtain(archive, folder, progress, timeout)
    return final


def _clear(archive: Archive, folder: Path) -> None:
    """Remove what a process left that was killed when the data set was in place, and all else not yet gone."""
    part = _part(archive, folder)
    if part.exists() or any(leftovers(archive, folder)):
        with suppress(OSError), locked(_lock(archive, folder)):  # not of a folder that may only be read
            part.unlink(missing_ok=True)
            remove_leftovers(archive, folder)


def _part(archive: Archive, folder: Path) -> Path:
    """Where the zip file grows."""
    return folder / f"{archive.name}.zip.part"


def _lock(archive: Archive, folder: Path) -> Path:
    return folder / f".{archive.name}.lock"


def _obtain(archive: Archive, folder: Path, progress: bool, timeout: float) -> None:
    transfer = _Transfer(archive, folder, progress, timeout)
    by_hand = folder / f"{archive.name}.zip"
    attempts: list[tuple[str, Callable[[], object]]] = [(url, partial(transfer.install, url)) for url in archive.urls]
    if by_hand.is_file():
        attempts.insert(0, (str(by_hand), partial(install, archive, by_hand, folder)))
    failures = []
    for source, attempt in attempts:
        try:
            attempt()
            return
        except (_MirrorError, BadArchive) as error:
            failures.append(f"{source}: {error}")
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
            break  # the disk, for which another mirror is no help
    raise DownloadError(_report(archive, folder, failures))


def _report(archive: Archive, folder: Path, failures: list[str]) -> str:
    size = None if archive.bytes is None else f"{archive.bytes} bytes"
    facts = ", ".join(fact for fact in (size, archive.checksum) if fact)
    lines = [f"{archive.name} could not be downloaded to {folder}", *(f"  {failure}" for failure in failures)]
    lines.append(f"By hand: save {' or '.join(archive.urls)}")
    lines.append(f"  as {folder / archive.name}.zip{f' ({facts})' if facts else ''} and call again.")
    if _part(archive, folder).exists():
        lines.append("What has arrived is kept, and the next call goes on from there.")
    if archive.licence:
        lines.append(f"Terms of use: {archive.licence}")
    return "\n".join(lines)


class _Transfer:
    """A zip file on its way into its part file, from one mirror after another."""

    def __init__(self, archive: Archive, folder: Path, progress: bool, timeout: float) -> None:
        self.archive, self.folder, self.progress, self.timeout = archive, folder, progress, timeout
        self.part = _part(archive, folder)
        self.total = archive.bytes  # of the file the part belongs to; None until a mirror tells

    def have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def install(self, url: str) -> None:
        """Fetches what is missing from one mirror, and installs the whole."""
        resumed = self.have() > 0
        self._fetch(url)
        try:
            install(self.archive, self.part, self.folder)
        except BadArchive:
            self.part.unlink()
            if not resumed:
                raise
            self.install(url)  # afresh: what was there before may be to blame, and not this mirror
            return
        self.part.unlink()

    def _fetch(self, url: str) -> None:
        """Connects until all is there. After the last byte of new ground, a few fruitless tries are allowed."""
        tries, reached = 0, self.have()
        while True:
            try:
                return self._connect(url)
            except _Cut:
                if self.have() > reached:
                    tries, reached = _RETRIES, self.have()
                if tries == 0:
                    raise
                time.sleep(_PAUSE * 2 ** (_RETRIES - tries))
                tries -= 1

    def _connect(self, url: str) -> None:
        have = self.have()
        if have and have == self.total:
            return
        with _open(url, have, self.timeout) as response:
            start, told = _extent(response, have)
            if self.archive.bytes is not None and told not in (None, self.archive.bytes):
                raise _MirrorError(f"the file must have {self.archive.bytes} bytes, the server offers {told}")
            total = told or (self.total if start else self.archive.bytes)
            beyond = response.status == 416  # nothing comes after what is here
            same_file = total in (None, have) if beyond else start == 0 or self.total in (None, total)
            self.total = total
            if same_file:
                return None if beyond else self._receive(response, start)
        self.part.unlink()
        self._connect(url)

    def _receive(self, response: HTTPResponse | HTTPError, start: int) -> None:
        done, rest = start, None if self.total is None else self.total - start
        require_space(self.folder, rest or 0)
        with (
            self.part.open("ab" if start else "wb") as file,
            _bar(self.archive.name, start, self.total, self.progress) as show,
        ):
            for block in _blocks(response, rest, self.timeout):
                file.write(block)
                done += len(block)
                show(done)
        if self.total is not None and done < self.total:
            raise _Cut(f"the connection was cut after {done} of {self.total} bytes")


class _WebRedirects(HTTPRedirectHandler):
    """Redirects to http and https only; urllib would follow one to ftp."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not newurl.lower().startswith(("http://", "https://")):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, start: int, timeout: float) -> HTTPResponse | HTTPError:
    """The answer to a request for the bytes from `start` on, whatever its status."""
    headers = {"User-Agent": "p2plane"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response: HTTPResponse = build_opener(_WebRedirects).open(Request(url, headers=headers), timeout=timeout)
        return response
    except HTTPError as error:
        return error
    except (OSError, HTTPException, ValueError) as error:
        raise _Cut(_reason(error, timeout)) from error


def _extent(response: HTTPResponse | HTTPError, have: int) -> tuple[int, int | None]:
    """Where the bytes of an answer begin, and the size of the whole file if it is told."""
    length = response.headers.get("Content-Length", "")
    content_range = response.headers.get("Content-Range", "")
    if response.status == 200:
        return 0, int(length) if length.isdecimal() else None
    if response.status == 416 and have:
        told = re.fullmatch(r"bytes \*/(\d+)", content_range)
        return have, int(told[1]) if told else None
    if response.status == 206:
        told = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
        if told is None or int(told[1]) != have:
            raise _MirrorError(f"Content-Range must begin at byte {have}, got {content_range!r}")
        return have, None if told[2] == "*" else int(told[2])
    raise _MirrorError(f"HTTP {response.status} {response.reason}")


def _blocks(response: HTTPResponse | HTTPError, count: int | None, timeout: float) -> Iterator[bytes]:
    """The body of an answer as it comes in, at most `count` bytes of it."""
    while count is None or count > 0:
        try:
            # read would lose what came before a cut, read1 hands over each piece
            block = response.read1(_BLOCK if count is None else min(_BLOCK, count))
        except (OSError, HTTPException, ValueError) as error:
            raise _Cut(_reason(error, timeout)) from error
        if not block:
            return
        count = None if count is None else count - len(block)
        yield block


def _reason(error: Exception, timeout: float) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no byte came for {timeout:g} s"
    return str(cause) or type(cause).__name__


@contextmanager
def _bar(name: str, start: int, total: int | None, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A function that draws how much has come, how fast, and how long the rest will take, on one terminal line."""
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    began = drawn = time.monotonic()

    def show(done: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn > 0.1 or done == total:
            drawn = now
            line = _line(name, done, total, speed=(done - start) / max(now - began, 1e-3))
            width = shutil.get_terminal_size().columns - 1
            print("\r" + line[:width].ljust(width), end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print(file=sys.stderr)


def _line(name: str, done: int, total: int | None, speed: float) -> str:
    if total is None:
        return f"{name} {done / 1e6:.1f} MB  {speed / 1e6:.1f} MB/s"
    filled = 20 * done // total
    minutes, seconds = divmod(round((total - done) / speed), 60)
    return (
        f"{name} [{'#' * filled}{'.' * (20 - filled)}] {100 * done // total}%  {done / 1e6:.1f} of {total / 1e6:.1f} MB"
        f"  {speed / 1e6:.1f} MB/s  {minutes}:{seconds:02d} left"
    )
