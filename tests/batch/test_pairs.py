"""Lists of pairs: what they mean, and what is wrong with bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2plane.batch.pairs import open_pairs


def names(given: object) -> list[tuple[str, str, str]]:
    return [(pair.source, pair.target, pair.initial) for pair in open_pairs(given).pairs()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.ply,b.ply\nc.ply,d.ply\n", [("a.ply", "b.ply", ""), ("c.ply", "d.ply", "")]),
        ("source,target\na.ply,b.ply", [("a.ply", "b.ply", "")]),
        ("\ufeffsource,target,initial\r\na.ply,b.ply,T.txt\r\n\r\n", [("a.ply", "b.ply", "T.txt")]),
        ("id,target,source\n7,a.ply,b.ply\n", [("b.ply", "a.ply", "")]),
        ('"a, the first.ply", b.ply ,\n', [("a, the first.ply", "b.ply", "")]),
    ],
)
def test_a_csv_file_may_name_its_columns(tmp_path: Path, text: str, expected: list) -> None:
    (tmp_path / "pairs.csv").write_bytes(text.encode())
    assert names(tmp_path / "pairs.csv") == expected


def test_names_are_relative_to_the_list(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("a.ply,/somewhere/b.ply\n")
    (pair,) = open_pairs(tmp_path / "pairs.csv").pairs()
    assert pair.path(pair.source) == tmp_path.resolve() / "a.ply"
    assert pair.path(pair.target) == Path("/somewhere/b.ply")


def test_a_folder_is_a_series_of_scans(tmp_path: Path) -> None:
    """In the order of numbers; what lies beside the scans is not a scan."""
    for name in ("s10.bin", "s9.bin", "s1.bin", "times.txt", "notes.md", "poses.txt"):
        (tmp_path / name).touch()
    assert names(tmp_path) == [("s9.bin", "s1.bin", ""), ("s10.bin", "s9.bin", "")]


def test_lists_that_differ_have_different_digests(tmp_path: Path) -> None:
    lists = [[("a", "b")], [("a", "b", "c")], [("b", "a")], [("a", "b"), ("a", "b")]]
    assert len({open_pairs(each).digest for each in lists}) == 4
    (tmp_path / "pairs.csv").write_text("a,b\n")
    assert open_pairs(tmp_path / "pairs.csv").digest == open_pairs([(Path("a"), "b", None)]).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "at least one pair, got none"),
        (b"source,target\n", "at least one pair, got none"),
        (b"a.ply\n", "line 1, must be source,target or source,target,initial, got no target"),
        (b"a.ply,b.ply\nc.ply,\n", "line 2, .* got no target"),
        (b"a,b,c,d\n", "line 1, .* got 4 cells"),
        (b"a.ply,\xff\xfe.ply\n", "CSV file in UTF-8"),
        (b'"a\nb.ply",c.ply\n', "a name with a line break"),
    ],
)
def test_a_bad_list_says_where(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "pairs.csv").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        open_pairs(tmp_path / "pairs.csv")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "got int"),
        ([], "at least one pair"),
        ([("a.ply", "b.ply"), ("a.ply",)], r"pairs\[1\]"),
        (["a.ply"], r"pairs\[0\]"),
        ([(1, 2)], r"pairs\[0\]"),
        ([("a.ply", "")], "got no target"),
    ],
)
def test_a_bad_sequence_says_where(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_pairs(given)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no list of pairs"):
        open_pairs(tmp_path / "pairs.csv")
    with pytest.raises(ValueError, match="at least two clouds"):
        open_pairs(tmp_path)
