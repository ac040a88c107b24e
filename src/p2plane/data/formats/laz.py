"""What a LAZ file claims, checked before lazrs believes it: a claim too large for the memory would end the process."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from p2plane.data.formats import limits
from p2plane.data.formats.extras import needed

LAYERED = 3  # the compressor of point formats 6 to 10, which stores every dimension of a chunk in a layer of its own
LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}  # type of item -> layers to a chunk; type 14, extra bytes, has one for each byte


def check(file: BinaryIO, header: Any, size: int) -> None:
    """Refuse compressed points whose sizes, chunks or layers do not fit into the file.

    Args:
        file: at any place; comes back at the same.
        header: the header that laspy has read.
        size: bytes in the file.
    """
    found = header.vlrs.get("LasZipVlr")
    if not found:
        raise ValueError("expected a record that describes the compression, got none")
    compressor, chunk_size, items = _description(found[0].record_data)
    width = sum(item_size for _, item_size in items)
    if width != header.point_format.size:
        raise ValueError(f"expected compressed points of {header.point_format.size} bytes, got {width}")
    if chunk_size == 0:
        raise ValueError("expected chunks of at least one point, got 0")
    before = file.tell()
    start = header.offset_to_point_data
    table = _table_start(file, start, size)
    _check_count(file, table, header.point_count, size)
    lazrs = needed("lazrs", "LAZ", "las")
    file.seek(start)
    chunks = lazrs.read_chunk_table(file, lazrs.LazVlr(found[0].record_data))
    if header.point_count > sum(points for points, _ in chunks):  # else it would read on behind the last chunk
        raise ValueError(f"expected chunks for {header.point_count} points, got them for fewer")
    limits.fits("the chunks", sum(packed for _, packed in chunks), max(table - start - 8, 0))
    if compressor == LAYERED:
        layers = sum(LAYERS.get(kind, item_size) for kind, item_size in items)
        _check_layers(file, start + 8, [packed for _, packed in chunks], width, layers)
    file.seek(before)


def _description(record: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """The compressor, the points to a chunk, and type and size of each item of a point."""
    if len(record) < 34 or len(record) != 34 + 6 * int.from_bytes(record[32:34], "little"):
        raise ValueError(f"expected 34 bytes on the compression and 6 for each item, got {len(record)}")
    items = [(kind, size) for kind, size, _ in struct.iter_unpack("<HHH", record[34:])]
    return int.from_bytes(record[:2], "little"), int.from_bytes(record[12:16], "little"), items


def _table_start(file: BinaryIO, start: int, size: int) -> int:
    file.seek(start)
    table = int.from_bytes(file.read(8), "little", signed=True)
    if table == -1:  # written by a program that could not go back: then it stands at the end
        file.seek(max(size - 8, 0))
        table = int.from_bytes(file.read(8), "little", signed=True)
    if not start + 8 <= table <= size - 8:
        raise ValueError(f"expected the table of chunks between bytes {start + 8} and {size - 8}, got {table}")
    return table


def _check_count(file: BinaryIO, table: int, points: int, size: int) -> None:
    file.seek(table + 4)
    count = int.from_bytes(file.read(4), "little")
    if count > min(points, size):
        raise ValueError(f"expected at most one chunk for each of {points} points, got {count}")


def _check_layers(file: BinaryIO, start: int, chunks: list[int], width: int, layers: int) -> None:
    """A chunk holds its first point as it is, the number of points, the size of each layer, and the layers."""
    for packed in chunks:
        file.seek(start + width + 4)
        sizes = struct.unpack(f"<{layers}I", file.read(4 * layers).ljust(4 * layers, b"\0"))
        if packed and width + 4 + 4 * layers + sum(sizes) != packed:
            raise ValueError(f"expected a chunk of {packed} bytes, got {width + 4 + 4 * layers + sum(sizes)}")
        start += packed
