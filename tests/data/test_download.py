"""Downloads from a server on this machine that cuts, hangs, lies and serves traps."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import random
import re
import socket
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from p2plane.data import archive as archives
from p2plane.data import download as downloads
from p2plane.data.archive import BadArchive, unpack
from p2plane.data.download import Archive, DownloadError, download

FILES = {"readme.txt": b"ten shapes", "train/shapes.bin": random.Random(0).randbytes(300_000)}


def zipped(files: dict[str, bytes], modes: dict[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (modes or {}).get(name, 0) << 16
            bundle.writestr(entry, content)
    return buffer.getvalue()


GOOD = zipped(FILES)
HALF = len(GOOD) // 2
MD5 = f"md5:{hashlib.md5(GOOD).hexdigest()}"
CORRUPT = GOOD[:HALF] + bytes(100) + GOOD[HALF + 100 :]


class Visitor(BaseHTTPRequestHandler):
    """One request, answered by the page that its path names."""

    server: Server

    def do_GET(self) -> None:
        self.server.pages[self.path](self)

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> None:
        """Headers that promise `length` bytes, then the body, which may be shorter."""
        self.server.log.append((self.path, self.headers.get("Range", ""), len(body)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        with contextlib.suppress(ConnectionError):  # a client that has seen enough
            self.end_headers()
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Visitor)
        self.pages: dict[str, Callable[[Visitor], None]] = {}
        self.log: list[tuple[str, str, int]] = []  # path, Range, bytes of the body
        self.closing = threading.Event()

    def page(self, name: str, answer: Callable[[Visitor], None]) -> str:
        self.pages[f"/{name}"] = answer
        return f"http://127.0.0.1:{self.server_port}/{name}"


def serve(visitor: Visitor, body: bytes = GOOD, cut: int | None = None) -> None:
    """The file, or the range of it that was asked for; with `cut`, the connection ends at that byte of the file."""
    asked = re.fullmatch(r"bytes=(\d+)-", visitor.headers.get("Range", ""))
    start, total = int(asked[1]) if asked else 0, len(body)
    if start >= total:
        visitor.answer(416, b"nothing there", Content_Range=f"bytes */{total}")
    elif asked:
        told = f"bytes {start}-{total - 1}/{total}"
        visitor.answer(206, body[start:cut], length=total - start, Content_Range=told)
    else:
        visitor.answer(200, body[:cut], length=total)


def serve_without_ranges(visitor: Visitor, body: bytes = GOOD) -> None:
    visitor.answer(200, body)


def serve_without_length(visitor: Visitor) -> None:
    visitor.server.log.append((visitor.path, "", len(GOOD)))
    visitor.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD)


def fail(visitor: Visitor, status: int) -> None:
    visitor.answer(status, b"an error page")


def hang(visitor: Visitor, body: bytes = b"") -> None:
    visitor.answer(200, body, length=len(GOOD))
    visitor.server.closing.wait()


class CutAt:
    """Serves the file and cuts the first connections at the given bytes, one after another."""

    def __init__(self, *cuts: int) -> None:
        self.cuts = list(cuts)

    def __call__(self, visitor: Visitor) -> None:
        serve(visitor, cut=self.cuts.pop(0) if self.cuts else None)


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    thread.join()
    server.server_close()


def shapes(*urls: str, **changes: object) -> Archive:
    return dataclasses.replace(Archive("shapes", urls, checksum=MD5, bytes=len(GOOD)), **changes)


def unknown(*urls: str) -> Archive:
    return shapes(*urls, checksum=None, bytes=None)


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/shapes.zip"


def assert_whole(folder: Path, *, beside: set[str] = frozenset()) -> None:
    """The data set is complete, and nothing but the lock lies beside it."""
    found = {path.relative_to(folder / "shapes").as_posix(): path for path in (folder / "shapes").rglob("*")}
    assert {name: path.read_bytes() for name, path in found.items() if path.is_file()} == FILES
    assert {path.name for path in folder.iterdir()} == {"shapes", ".shapes.lock"} | beside


def assert_nothing(folder: Path, *, beside: set[str] = frozenset()) -> None:
    assert {path.name for path in folder.iterdir()} == {".shapes.lock"} | beside


# Fetching


def test_a_data_set_is_fetched_checked_and_unpacked(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    assert download(shapes(server.page("good", serve)), folder) == folder / "shapes"
    assert_whole(folder)


def test_sha256_and_capital_digits(server: Server, tmp_path: Path) -> None:
    digits = hashlib.sha256(GOOD).hexdigest().upper()
    download(shapes(server.page("good", serve), checksum=f"sha256:{digits}"), tmp_path)
    assert_whole(tmp_path)


def test_a_second_call_uses_no_network(server: Server, tmp_path: Path) -> None:
    archive = shapes(server.page("good", serve))
    download(archive, tmp_path)
    server.log.clear()
    assert download(archive, str(tmp_path)) == tmp_path / "shapes"
    assert server.log == []


def test_an_empty_folder_does_not_count(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    download(shapes(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)


def test_a_server_that_tells_no_length(server: Server, tmp_path: Path) -> None:
    download(unknown(server.page("bare", serve_without_length)), tmp_path)
    assert_whole(tmp_path)


def test_redirects_are_followed_on_the_web_only(server: Server, tmp_path: Path) -> None:
    good = server.page("good", serve)
    there = server.page("there", lambda visitor: visitor.answer(302, Location=good))
    away = server.page("away", lambda visitor: visitor.answer(302, Location="ftp://127.0.0.1/shapes.zip"))
    with pytest.raises(DownloadError, match="away: HTTP 302"):
        download(shapes(away), tmp_path)
    download(shapes(there), tmp_path)
    assert_whole(tmp_path)


# Cuts


def test_a_cut_is_resumed_and_only_the_rest_is_sent(server: Server, tmp_path: Path) -> None:
    download(shapes(server.page("cut", CutAt(HALF))), tmp_path)
    assert_whole(tmp_path)
    assert server.log == [("/cut", "", HALF), ("/cut", f"bytes={HALF}-", len(GOOD) - HALF)]


def test_many_cuts_are_survived_while_bytes_come(server: Server, tmp_path: Path) -> None:
    download(shapes(server.page("cut", CutAt(*range(10_000, 200_000, 10_000)))), tmp_path)
    assert_whole(tmp_path)
    assert sum(count for _, _, count in server.log) == len(GOOD)


def test_a_mirror_that_gives_no_more_bytes_is_left(server: Server, tmp_path: Path) -> None:
    stuck, good = server.page("stuck", partial(serve, cut=HALF)), server.page("good", serve)
    download(shapes(stuck, good), tmp_path)
    assert_whole(tmp_path)
    assert [path for path, _, _ in server.log] == ["/stuck"] * (1 + downloads._RETRIES) + ["/good"]
    assert server.log[-1] == ("/good", f"bytes={HALF}-", len(GOOD) - HALF)


def test_a_later_call_goes_on_from_the_part(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=rf"cut after {HALF} of {len(GOOD)} bytes(.|\n)*next call goes on"):
        download(shapes(server.page("stuck", partial(serve, cut=HALF))), tmp_path)
    assert_nothing(tmp_path, beside={"shapes.zip.part"})
    server.log.clear()
    download(shapes(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)
    assert server.log == [("/good", f"bytes={HALF}-", len(GOOD) - HALF)]


def test_a_server_without_ranges_starts_afresh(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(GOOD[:HALF])
    download(shapes(server.page("plain", serve_without_ranges)), tmp_path)
    assert_whole(tmp_path)


def test_a_range_that_begins_elsewhere_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(GOOD[:HALF])
    told = f"bytes 0-{len(GOOD) - 1}/{len(GOOD)}"
    odd = server.page("odd", lambda visitor: visitor.answer(206, GOOD, Content_Range=told))
    with pytest.raises(DownloadError, match=f"Content-Range must begin at byte {HALF}, got 'bytes 0-"):
        download(shapes(odd), tmp_path)
    assert (tmp_path / "shapes.zip.part").read_bytes() == GOOD[:HALF]


@pytest.mark.parametrize("describe", [shapes, unknown])
def test_a_part_that_is_whole_is_used(server: Server, tmp_path: Path, describe: Callable[[str], Archive]) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(GOOD)
    download(describe(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)
    assert sum(count for _, _, count in server.log) < 100  # at most a 416


@pytest.mark.parametrize("describe", [shapes, unknown])
@pytest.mark.parametrize("told", ["", f"bytes */{len(GOOD)}"])
@pytest.mark.parametrize("size", [HALF, 2 * len(GOOD)])
def test_a_part_beyond_the_range_that_is_not_whole_is_dropped(
    server: Server, tmp_path: Path, describe: Callable[[str], Archive], told: str, size: int
) -> None:
    def page(visitor: Visitor) -> None:
        if "Range" in visitor.headers:
            visitor.answer(416, b"nothing there", Content_Range=told)
        else:
            visitor.answer(200, GOOD)

    (tmp_path / "shapes.zip.part").write_bytes(b"x" * size)
    download(describe(server.page("page", page)), tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize("describe", [shapes, unknown])
def test_a_stale_part_is_not_held_against_the_mirror(
    server: Server, tmp_path: Path, describe: Callable[[str], Archive]
) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(CORRUPT[: HALF + 1000])
    download(describe(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)
    assert [range_ for _, range_, _ in server.log] == [f"bytes={HALF + 1000}-", ""]


def test_a_part_of_another_size_is_not_continued(server: Server, tmp_path: Path) -> None:
    longer = zipped(FILES | {"more.txt": b"an eleventh shape"})
    stuck = server.page("stuck", partial(serve, body=longer, cut=HALF))
    download(unknown(stuck, server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)
    assert server.log[-1] == ("/good", "", len(GOOD))


# Mirrors


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_http_error_leads_to_the_next_mirror(server: Server, tmp_path: Path, status: int) -> None:
    bad, good = server.page("bad", partial(fail, status=status)), server.page("good", serve)
    download(shapes(bad, good), tmp_path)
    assert_whole(tmp_path)
    assert [path for path, _, _ in server.log] == ["/bad", "/good"]


def test_corrupt_bytes_lead_to_the_next_mirror(server: Server, tmp_path: Path) -> None:
    download(shapes(server.page("bad", partial(serve, body=CORRUPT)), server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)
    assert server.log == [("/bad", "", len(GOOD)), ("/good", "", len(GOOD))]


def test_without_a_checksum_the_zip_file_shows_the_damage(server: Server, tmp_path: Path) -> None:
    download(unknown(server.page("bad", partial(serve, body=CORRUPT)), server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize("body", [b"", GOOD[:HALF]])
def test_a_silent_server_leads_to_the_next_mirror(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(downloads, "_RETRIES", 1)
    silent, good = server.page("silent", partial(hang, body=body)), server.page("good", serve)
    download(shapes(silent, good), tmp_path, timeout=0.5)
    assert_whole(tmp_path)


def test_a_silent_server_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"silent: no byte came for 0\.2 s"):
        download(shapes(server.page("silent", hang)), tmp_path, timeout=0.2)


def test_an_unreachable_server_leads_to_the_next_mirror(server: Server, tmp_path: Path) -> None:
    download(shapes(closed_port(), server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)


def test_a_wrong_size_is_refused_before_a_byte_is_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(GOOD[:HALF])
    short = server.page("short", partial(serve_without_ranges, body=GOOD[:-1]))
    with pytest.raises(DownloadError, match=f"must have {len(GOOD)} bytes, the server offers {len(GOOD) - 1}"):
        download(shapes(short), tmp_path)
    assert (tmp_path / "shapes.zip.part").read_bytes() == GOOD[:HALF]


def test_when_all_mirrors_fail_each_is_named_with_its_fault_and_the_remedy(server: Server, tmp_path: Path) -> None:
    missing = server.page("missing", partial(fail, status=404))
    corrupt = server.page("corrupt", partial(serve, body=CORRUPT))
    with pytest.raises(DownloadError) as caught:
        download(shapes(missing, corrupt, licence="for research only"), tmp_path)
    message = str(caught.value)
    assert f"{missing}: HTTP 404 Not Found" in message
    assert f"{corrupt}: the checksum must be {MD5}, got md5:" in message
    assert f"save {missing} or {corrupt}" in message
    assert f"as {tmp_path / 'shapes.zip'} ({len(GOOD)} bytes, {MD5}) and call again" in message
    assert "for research only" in message
    assert_nothing(tmp_path)


def test_the_remedy_works(tmp_path: Path) -> None:
    (tmp_path / "shapes.zip").write_bytes(GOOD)
    download(shapes(closed_port()), tmp_path)
    assert_whole(tmp_path, beside={"shapes.zip"})


def test_a_wrong_file_by_hand_is_named_and_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "shapes.zip").write_bytes(CORRUPT)
    with pytest.raises(DownloadError, match=r"shapes\.zip: the checksum must be"):
        download(shapes(closed_port()), tmp_path)
    assert (tmp_path / "shapes.zip").read_bytes() == CORRUPT
    download(shapes(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path, beside={"shapes.zip"})


# Unpacking

TRAPS = {
    "upwards": zipped({"../outside.txt": b"out"}),
    "upwards within": zipped({"train/../../outside.txt": b"out"}),
    "upwards on Windows": zipped({"train\\..\\..\\outside.txt": b"out"}),
    "absolute": zipped({"/outside.txt": b"out"}),
    "drive": zipped({"C:outside.txt": b"out"}),
    "link": zipped({"link": b"/etc/passwd"}, {"link": stat.S_IFLNK | 0o777}),
    "pipe": zipped({"pipe": b"x"}, {"pipe": stat.S_IFIFO | 0o644}),
    "file as folder": zipped({"train": b"x", "train/shapes.bin": b"x"}),
    "nameless": zipped({"": b"x"}),
    "empty": zipped({}),
    "not a zip": b"<html>please log in</html>",
    "cut": GOOD[:HALF],
    "corrupt": CORRUPT,
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_refused_and_leaves_nothing(server: Server, tmp_path: Path, trap: str) -> None:
    folder = tmp_path / "data"
    with pytest.raises(DownloadError, match="/trap: the zip file "):
        download(unknown(server.page("trap", partial(serve, body=TRAPS[trap]))), folder)
    assert_nothing(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_good_archive_by_mirror_two_after_a_trap(server: Server, tmp_path: Path) -> None:
    download(unknown(server.page("trap", partial(serve, body=TRAPS["link"])), server.page("good", serve)), tmp_path)
    assert_whole(tmp_path)


def test_a_thousand_damaged_zip_files_are_each_unpacked_or_refused(tmp_path: Path) -> None:
    dice, small = random.Random(0), zipped({"a.txt": b"a" * 50, "b/c.txt": b"b" * 50})
    for _ in range(1000):
        damaged = bytearray(small)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (tmp_path / "damaged.zip").write_bytes(damaged)
        (tmp_path / "out").mkdir(exist_ok=True)
        with contextlib.suppress(BadArchive):
            unpack(tmp_path / "damaged.zip", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"damaged.zip", "out"}


def test_an_archive_of_one_folder_with_its_name_becomes_that_folder(server: Server, tmp_path: Path) -> None:
    nested = zipped({f"shapes/{name}": content for name, content in FILES.items()})
    download(unknown(server.page("nested", partial(serve, body=nested))), tmp_path)
    assert_whole(tmp_path)


def test_the_folder_is_open_to_others(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ordinary").mkdir()
    download(shapes(server.page("good", serve)), tmp_path)
    assert (tmp_path / "shapes").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_an_interrupted_unpacking_leaves_nothing_and_is_taken_up_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, extract = shapes(server.page("good", serve)), zipfile.ZipFile.extract

    def interrupted(bundle: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> str:
        if entry.filename == "train/shapes.bin":
            raise KeyboardInterrupt
        return extract(bundle, entry, folder)

    monkeypatch.setattr(zipfile.ZipFile, "extract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(archive, tmp_path)
    monkeypatch.setattr(zipfile.ZipFile, "extract", extract)
    assert_nothing(tmp_path, beside={"shapes.zip.part"})
    server.log.clear()
    download(archive, tmp_path)
    assert_whole(tmp_path)
    assert server.log == []


def test_too_much_to_unpack_is_refused(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(DownloadError, match="must unpack to at most 1000 bytes, got 300010"):
        download(shapes(server.page("good", serve)), tmp_path)
    assert_nothing(tmp_path)


@pytest.mark.parametrize("arrived", [b"", GOOD])
def test_a_full_disk_is_named_and_loses_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrived: bytes
) -> None:
    (tmp_path / "shapes.zip.part").write_bytes(arrived)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda folder: SimpleNamespace(free=100_000))
    with pytest.raises(DownloadError, match=re.escape(f"{tmp_path}: 0.3 MB are needed, 0.1 MB are free")):
        download(shapes(server.page("good", serve), server.page("other", serve)), tmp_path)
    assert_nothing(tmp_path, beside={"shapes.zip.part"})
    assert (tmp_path / "shapes.zip.part").read_bytes() == arrived
    assert "/other" not in [path for path, _, _ in server.log]  # it would not help


# Company


def test_downloads_at_once_end_in_one_good_folder(server: Server, tmp_path: Path) -> None:
    archive = shapes(server.page("cut", CutAt(HALF)))
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: download(archive, tmp_path), range(4)))
    assert folders == [tmp_path / "shapes"] * 4
    assert_whole(tmp_path)
    assert sum(count for _, _, count in server.log) == len(GOOD)


def test_what_a_killed_process_was_unpacking_is_removed(server: Server, tmp_path: Path) -> None:
    for name in (".shapes-ab12_xyz", ".shapes-of-others"):
        (tmp_path / name / "content").mkdir(parents=True)
    download(shapes(server.page("good", serve)), tmp_path)
    assert_whole(tmp_path, beside={".shapes-of-others"})


def test_what_was_left_by_a_process_killed_when_all_was_in_place_is_removed(server: Server, tmp_path: Path) -> None:
    archive = shapes(server.page("good", serve))
    download(archive, tmp_path)
    (tmp_path / "shapes.zip.part").write_bytes(GOOD)
    (tmp_path / ".shapes-ab12_xyz" / "content").mkdir(parents=True)
    server.log.clear()
    download(archive, tmp_path)
    assert_whole(tmp_path)
    assert server.log == []


def test_a_faster_process_wins_where_there_are_no_locks(server: Server, tmp_path: Path) -> None:
    def overtaken(visitor: Visitor) -> None:
        for name, content in FILES.items():
            path = tmp_path / "shapes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        serve(visitor)

    download(shapes(server.page("slow", overtaken)), tmp_path)
    assert_whole(tmp_path)


# The progress bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_the_bar_is_for_terminals(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, progress: bool, stream: type[io.StringIO]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setenv("COLUMNS", "100")
    download(shapes(server.page("good", serve)), tmp_path, progress=progress)
    shown = sys.stderr.getvalue()
    if progress and stream is Terminal:
        assert re.search(r"\rshapes \[#{20}\] 100%  0\.3 of 0\.3 MB  .* MB/s  0:00 left *\n$", shown)
        assert all(len(line) < 100 for line in re.split(r"[\r\n]", shown))
    else:
        assert shown == ""


def test_the_line_of_the_bar() -> None:
    line = downloads._line("shapes", 30_000_000, 120_000_000, speed=1_000_000)
    assert line == "shapes [#####...............] 25%  30.0 of 120.0 MB  1.0 MB/s  1:30 left"
    assert downloads._line("shapes", 30_000_000, None, speed=1_000_000) == "shapes 30.0 MB  1.0 MB/s"


# Wrong input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../shapes"}, "name must be a plain folder name"),
        ({"name": ".."}, "name must be a plain folder name"),
        ({"name": ""}, "name must be a plain folder name"),
        ({"urls": ()}, "urls must be a tuple of at least one address"),
        ({"urls": "http://127.0.0.1/"}, "urls must be a tuple"),
        ({"urls": ("file:///etc/passwd",)}, "urls must be http or https addresses, got 'file:///etc/passwd'"),
        ({"urls": ("ftp://127.0.0.1/a.zip",)}, "urls must be http or https"),
        ({"urls": ("http:///a.zip",)}, "urls must be http or https"),
        ({"checksum": "d41d8cd98f00b204e9800998ecf8427e"}, "checksum must be 'md5:' and 32"),
        ({"checksum": "md5:123"}, "checksum must be"),
        ({"checksum": "crc:12345678"}, "checksum must be"),
        ({"bytes": 0}, "bytes must be positive or None, got 0"),
    ],
)
def test_an_archive_is_checked_at_the_door(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        shapes("http://127.0.0.1/shapes.zip", **changes)


def test_a_file_in_the_place_of_the_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "shapes").write_text("mine")
    with pytest.raises(ValueError, match="shapes must be a folder or not exist, got a file"):
        download(shapes(closed_port()), tmp_path)
    assert (tmp_path / "shapes").read_text() == "mine"


def test_timeout_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeout must be positive, got 0"):
        download(shapes(closed_port()), tmp_path, timeout=0)
