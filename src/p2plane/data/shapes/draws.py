"""Small draws that the categories share."""

from __future__ import annotations

from numpy.random import Generator


def draw(generator: Generator, *ranges: tuple[float, float]) -> list[float]:
    """One number, uniform, from each of the ranges."""
    shares = generator.random(len(ranges)).tolist()
    return [low + (high - low) * share for (low, high), share in zip(ranges, shares, strict=True)]


def count(generator: Generator, least: int, most: int) -> int:
    """A whole number from least to most, both included."""
    return int(generator.integers(least, most + 1))


def perhaps(generator: Generator, chance: float = 0.5) -> bool:
    """True this often."""
    return bool(generator.random() < chance)


def either_side(generator: Generator) -> int:
    """Minus one or one."""
    return 1 if perhaps(generator) else -1
