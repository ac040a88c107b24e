"""E57 files of terrestrial scanners, through pye57, for reading only: it would write single precision."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from p2plane.data.formats import limits
from p2plane.data.formats.content import POINTS, Columns, Content, shown
from p2plane.data.formats.extras import needed

CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
INVALID = ("cartesianInvalidState", "sphericalInvalidState")
OTHERS = {"intensity": "intensity", "colorRed": "red", "colorGreen": "green", "colorBlue": "blue"}
PAGE = 1024  # bytes, the last four of which are a checksum
BYTES_PER_POINT = 64  # about what pye57 allocates


def read(path: Path) -> Content:
    """The points of all scans of a file, in its common frame; of several scans, the field ``scan`` tells which."""
    pye57 = needed("pye57", "E57", "e57")
    data = path.read_bytes()
    _check(data)
    with limits.contained("pye57"):
        file = pye57.E57(str(path))
        try:
            claimed = sum(file.get_header(i).point_count for i in range(file.scan_count))
            limits.expands(f"{claimed} points", BYTES_PER_POINT * claimed, len(data))
            scans = [_scan(pye57, file, i) for i in range(file.scan_count)]
        finally:
            file.close()
    if not scans:
        raise ValueError("expected at least one scan, got none")
    common = [name for name in scans[0] if all(name in scan for scan in scans)]
    columns = {name: np.concatenate([scan[name] for scan in scans]) for name in common}
    if len(scans) > 1:
        columns["scan"] = np.repeat(np.arange(len(scans)), [len(scan["x"]) for scan in scans])
    return Content(columns)


def _scan(pye57: ModuleType, file: Any, index: int) -> Columns:
    """The columns of one scan; points that it marks as invalid are not a number."""
    header = file.get_header(index)
    triple = next((each for each in (CARTESIAN, SPHERICAL) if set(each) <= set(header.point_fields)), None)
    if triple is None:
        raise ValueError(f"expected points {shown(CARTESIAN)} or {shown(SPHERICAL)}, got {shown(header.point_fields)}")
    wanted = [name for name in (*triple, *OTHERS, *INVALID) if name in header.point_fields]
    found, buffers = file.make_buffers(wanted, header.point_count)
    count = header.points.reader(buffers).read()
    if count != header.point_count:  # the rest would be whatever was in the memory
        raise ValueError(f"expected {header.point_count} points, got {count}")
    points = np.stack([found[name] for name in triple], axis=1)
    points[np.any([found[name] != 0 for name in INVALID if name in found] or [np.zeros(count, bool)], axis=0)] = np.nan
    if triple is SPHERICAL:
        points = pye57.utils.convert_spherical_to_cartesian(points)
    if header.has_pose():
        points = file.to_global(points, header.rotation, header.translation)
    columns = dict(zip(POINTS[0], points.T, strict=True))
    return columns | {name: found[key] for key, name in OTHERS.items() if key in found}


def _check(data: bytes) -> None:
    """Hold the header against the file, and refuse XML with entities, which could expand without end."""
    if data[:8] != b"ASTM-E57" or len(data) < 48:
        raise ValueError("expected a file that begins with 'ASTM-E57' and a header of 48 bytes, got another")
    size, start, length, page = (int.from_bytes(data[i : i + 8], "little") for i in (16, 24, 32, 40))
    if size != len(data) or page != PAGE or size % PAGE:
        raise ValueError(f"expected {size} bytes in pages of {PAGE}, got {len(data)} in pages of {page}")
    limits.fits("the description in XML", start + length, len(data))
    pages = data[start // PAGE * PAGE :]
    text = b"".join(pages[i : i + PAGE - 4] for i in range(0, len(pages), PAGE))
    description = text[start % PAGE : start % PAGE + length]
    if b"<e57Root" not in description or b"<!" in description.replace(b"<![CDATA[", b""):
        raise ValueError("expected a description in plain XML, got something else")
