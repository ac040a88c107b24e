"""Files made worse, in ways that a seed decides: what a reader must survive."""

from __future__ import annotations

import random
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"3",
    b"255",
    b"65536",
    b"4294967295",
    b"1000000000000",
    b"9" * 30,
    b"1e9",
    b"nan",
    b"inf",
)
BYTES = (b"\x00", b"\xff", b"\n", b" ", b"#", b",", b"-", b"9", b"\x80", b"\xff\xff\xff\xff", b"\x00" * 8, b"\xff" * 8)


def mutate(data: bytes, seed: int) -> bytes:
    """The data after one to four mishaps; the same seed has the same ones."""
    random_ = random.Random(seed)
    for _ in range(random_.randint(1, 4)):
        data = random_.choice(MISHAPS)(data, random_)
    return data


def flip(data: bytes, random_: random.Random) -> bytes:
    """Other bits in one to eight bytes, most often in the first thousand, where headers are."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 8) if data else 0):
        changed[random_.randrange(_reach(data, random_))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def truncate(data: bytes, random_: random.Random) -> bytes:
    """Only the beginning, or only the end."""
    cut = random_.randint(0, len(data))
    return data[:cut] if random_.random() < 0.8 else data[cut:]


def duplicate(data: bytes, random_: random.Random) -> bytes:
    """Some stretch twice."""
    start = random_.randint(0, len(data))
    end = random_.randint(start, min(len(data), start + 200))
    return data[:end] + data[start:end] + data[end:]


def remove(data: bytes, random_: random.Random) -> bytes:
    """Some stretch missing."""
    start = random_.randint(0, len(data))
    return data[:start] + data[random_.randint(start, min(len(data), start + 50)) :]


def insert(data: bytes, random_: random.Random) -> bytes:
    """Bytes that mean something, where they do not belong."""
    at = random_.randint(0, _reach(data, random_))
    return data[:at] + random_.choice(BYTES) + data[at:]


def overwrite(data: bytes, random_: random.Random) -> bytes:
    """Bytes that mean something in place of others: counts and offsets in binary headers."""
    at = random_.randint(0, _reach(data, random_))
    new = random_.choice(BYTES)
    return data[:at] + new + data[at + len(new) :]


def renumber(data: bytes, random_: random.Random) -> bytes:
    """Another number in place of one in the header."""
    found = list(re.finditer(rb"-?\d+", data[:1000]))
    if not found:
        return data
    number = random_.choice(found)
    return data[: number.start()] + random_.choice(NUMBERS) + data[number.end() :]


def swap_lines(data: bytes, random_: random.Random) -> bytes:
    """Two of the first lines in each other's place."""
    lines = data.split(b"\n")
    first, second = (random_.randrange(min(len(lines), 20)) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


MISHAPS = (flip, truncate, duplicate, remove, insert, overwrite, renumber, swap_lines)


@contextmanager
def little_memory(size: int) -> Iterator[None]:
    """So many bytes of address space beyond what the process has, which a file with an absurd claim would exceed."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def with_checksums(data: bytes) -> bytes:
    """An E57 file whose length and checksums are right again, so that a reader must look further."""
    data = data[:16] + (len(data) // 1024 * 1024).to_bytes(8, "little") + data[24:]
    pages = [data[i : i + 1020] for i in range(0, len(data) - 1023, 1024)]
    return b"".join(page + _crc32c(page).to_bytes(4, "big") for page in pages)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC = [_crc_of_byte(value) for value in range(256)]


def _reach(data: bytes, random_: random.Random) -> int:
    return max(1, min(len(data), 1000) if random_.random() < 0.7 else len(data)) if data else 0
