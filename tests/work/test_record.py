"""The record beside a file of rows: what is none is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2plane.work.record import agreed_record, write_record


def test_the_same_settings_are_agreed_on(tmp_path: Path) -> None:
    write_record(tmp_path / "rows.csv", {"settings": {"seed": 1}, "summary": {}})
    assert agreed_record(tmp_path / "rows.csv", {"seed": 1}) == {"settings": {"seed": 1}, "summary": {}}


def test_settings_are_the_same_if_they_are_written_the_same(tmp_path: Path) -> None:
    settings = {"radii": (3.0, 1.5), "of": {"names": ("a", "b")}}  # JSON has lists alone
    write_record(tmp_path / "rows.csv", {"settings": settings})
    agreed_record(tmp_path / "rows.csv", settings)
    with pytest.raises(ValueError, match="radii"):
        agreed_record(tmp_path / "rows.csv", {**settings, "radii": (3.0, 1.4)})


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"settings": 3}', b"[" * 100_000])
def test_what_is_no_record_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.json must"):
        agreed_record(tmp_path / "rows.csv", {"seed": 1})
