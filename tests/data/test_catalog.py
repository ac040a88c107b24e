"""Data sets by name, and the command that lists, checks and downloads them."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
import zipfile
from dataclasses import replace

import pytest

from p2plane.cli import main
from p2plane.data import catalog
from p2plane.data.archive import Archive
from p2plane.data.modelnet import HDF5
from p2plane.data.synthetic import SyntheticShapes
from tests.data.test_datasets import elsewhere, write_hdf5  # noqa: F401


def test_the_listing_says_where_things_are_and_how_to_get_the_rest(tmp_path, capsys):
    folder = write_hdf5(tmp_path)
    assert main(["data", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert str(folder) in printed
    assert "p2plane data download modelnet40-resampled" in printed
    assert "built in" in printed


def test_check_reads_every_shape(tmp_path, capsys):
    write_hdf5(tmp_path, "train")
    write_hdf5(tmp_path, "test", shapes=2)
    assert main(["data", "check", "modelnet40", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "modelnet40 train: 8 shapes of 29 to 30 points, all finite",
        "modelnet40 test: 4 shapes of 29 to 30 points, all finite",
    ]


def test_what_goes_wrong_is_one_line_and_an_exit_code(capsys):
    assert main(["data", "check", "modelnet40"]) == 2
    assert "p2plane: modelnet40_ply_hdf5_2048 or" in capsys.readouterr().err
    assert main(["data", "check", "kitti"]) == 2
    assert "name must be one of ('modelnet40'" in capsys.readouterr().err
    assert main(["data", "download", "icl-nuim"]) == 2
    assert "name must be a data set that can be downloaded" in capsys.readouterr().err
    assert main(["data", "download", "synthetic"]) == 2
    assert "which is built in" in capsys.readouterr().err


def test_the_built_in_data_set_opens_without_a_file():
    assert isinstance(catalog.open_shapes("synthetic", "test"), SyntheticShapes)


def test_download_fetches_checks_and_unpacks(tmp_path, monkeypatch, capsys):
    write_hdf5(tmp_path / "made")
    packed = tmp_path / "served" / f"{HDF5}.zip"
    packed.parent.mkdir()
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted((tmp_path / "made").rglob("*.*")):
            file.write(path, path.relative_to(tmp_path / "made"))
    handler = functools.partial(_Quiet, directory=str(packed.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{HDF5}.zip"
        archive = Archive(HDF5, (url,), checksum="md5:" + hashlib.md5(packed.read_bytes()).hexdigest())
        monkeypatch.setitem(catalog.CATALOG, "modelnet40", replace(catalog.CATALOG["modelnet40"], archive=archive))
        assert main(["data", "download", "modelnet40", "--root", str(tmp_path / "here")]) == 0
        server.shutdown()
    assert str(tmp_path / "here" / HDF5) in capsys.readouterr().out
    assert len(catalog.open_shapes("modelnet40", "train", tmp_path / "here")) == 8


@pytest.mark.parametrize("name", [name for name, entry in catalog.CATALOG.items() if entry.archive])
def test_archives_come_over_https_and_say_whose_they_are(name):
    archive = catalog.CATALOG[name].archive
    assert all(url.startswith("https://") for url in archive.urls)
    assert archive.licence


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass
