"""Vessels and what grows in them. z is up; sizes are in metres, or in decimetres where the object is small."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from p2plane.data.shapes.draws import count, draw, perhaps
from p2plane.data.shapes.parts import Part, moved
from p2plane.data.shapes.solids import (
    at_corners,
    box,
    cone,
    cylinder,
    hollow_box,
    loop,
    prism,
    revolved,
    rod,
    sphere,
    torus,
)


def bottle(generator: Generator) -> list[Part]:
    """A body that narrows to a neck with a cap; some are square, some have a handle or a trigger."""
    radius, height, neck, shoulder = draw(generator, (0.3, 0.5), (0.9, 1.6), (0.1, 0.2), (0.1, 0.4))
    top = height + shoulder
    mouth = top + generator.uniform(0.1, 0.5)
    if perhaps(generator):
        body = [box(2 * radius, 1.3 * radius, height), cone(0.6 * radius, neck, shoulder).at(0, 0, height)]
    else:
        body = [revolved([(0, 0), (radius * 0.9, 0), (radius, 0.08), (radius, height), (neck, top), (0, top)])]
    parts = [*body, cylinder(neck, mouth), cylinder(neck * 1.25, 0.15).at(0, 0, mouth)]
    kind = count(generator, 0, 2)
    if kind == 1:
        parts += loop((0, 0, height * 0.25), (0, 0, height * 0.9), (radius + 0.25, 0, 0), 0.07, 0.15)
    elif kind == 2:
        head = mouth + 0.1
        parts += [box(0.55, 0.2, 0.2).at(0.12, 0, head), rod((0.3, 0, head + 0.1), (0.2, 0, head - 0.25), 0.05)]
    return parts


def bowl(generator: Generator) -> list[Part]:
    """A round shell on a foot ring; a spoon leans in some."""
    radius, depth, wall, foot, curve = draw(generator, (0.6, 1.0), (0.3, 0.7), (0.03, 0.08), (0.25, 0.45), (1.5, 3.0))
    radii = np.linspace(foot, 1, 8) * radius
    heights = 0.08 + depth * (np.linspace(0, 1, 8) ** curve)
    outer = np.column_stack([radii, heights])
    inner = outer[::-1] - (wall, 0)
    inner[1:, 1] += wall * 0.8
    shell = revolved([(0, 0), (foot * radius, 0), *outer, *inner, (0, heights[0] + wall * 0.8)])
    if not perhaps(generator):
        return [shell]
    tip = (-radius * 0.15, 0, heights[0] + wall + 0.05)
    end = (radius * 1.2, radius * 0.2, depth + 0.4)
    return [shell, rod(tip, end, 0.03, 0.04), sphere(0.09).at(*tip)]


def cone_on_base(generator: Generator) -> list[Part]:
    """A traffic cone on a square base, with raised bands."""
    base, height, bottom, top, thick = draw(generator, (0.5, 0.8), (0.7, 1.2), (0.3, 0.44), (0.04, 0.1), (0.05, 0.14))
    bottom *= base
    parts = [box(base, base * generator.uniform(0.8, 1.0), thick), cone(bottom, top, height).at(0, 0, thick)]
    for low in draw(generator, (0.2, 0.4), (0.55, 0.75)):
        wide, narrow = (bottom + (top - bottom) * share + 0.012 for share in (low, low + 0.15))
        parts.append(cone(wide, narrow, 0.15 * height).at(0, 0, thick + low * height))
    return [*parts, *at_corners(cylinder(0.04, thick + 0.03), base * 0.85, base * 0.65)]


def cup(generator: Generator) -> list[Part]:
    """A mug with a handle, perhaps on a saucer with a spoon."""
    radius, flare, height, wall, grip = draw(generator, (0.35, 0.5), (0.85, 1.4), (0.7, 1.1), (0.03, 0.06), (0.15, 0.3))
    rim = radius * flare
    outer = [(0, 0), (radius, 0), (rim, height)]
    parts = [revolved([*outer, (rim - wall, height), (radius - wall, wall), (0, wall)])]
    low, high = height * 0.25, height * generator.uniform(0.7, 0.85)
    start, end = ((radius + (rim - radius) * z / height - wall / 2, 0, z) for z in (low, high))
    parts += loop(start, end, (grip + 0.12, 0, 0), 0.055, 0.14)
    if perhaps(generator, 0.4):
        plate = radius * 2.1
        saucer = [(0, -0.05), (radius, -0.05), (plate, 0.08), (plate, 0.12), (radius * 1.05, 0), (0, 0)]
        spoon = rod((-radius * 0.5, radius * 1.3, 0.06), (plate, radius * 1.2, 0.16), 0.03)
        parts += [revolved(saucer), spoon, sphere(0.08).at(-radius * 0.5, radius * 1.3, 0.06)]
    return parts


def flower_pot(generator: Generator) -> list[Part]:
    """A pot with earth, from which flowers with round heads and a few leaves grow."""
    parts, height, radius = _pot(generator)
    for i in range(count(generator, 3, 6)):
        angle, out, tall, head = draw(generator, (0, 1.2), (0.2, 0.8), (0.4, 1.1), (0.08, 0.16))
        angle += 2.1 * i
        tip = (radius * out * math.cos(angle), radius * out * math.sin(angle), height + tall)
        stem = (tip[0] * 0.4, tip[1] * 0.4, height - 0.05)
        parts += [rod(stem, tip, 0.025), sphere(head).at(*tip)]
        if perhaps(generator):
            parts.append(torus(head * 1.3, head * 0.35).at(*tip))
    return parts + moved(_leaves(generator, count(generator, 2, 5), 0.5, (0.2, 0.9)), 0, 0, height - 0.04)


def glass_box(generator: Generator) -> list[Part]:
    """A thin-walled open box with a divider, its lid ajar, leaning or away, and things inside."""
    width, depth, height, wall = draw(generator, (0.7, 1.4), (0.5, 1.0), (0.4, 1.0), (0.02, 0.04))
    parts = hollow_box(width, depth, height, wall)
    split = width * generator.uniform(-0.3, 0.3)
    parts.append(box(wall, depth - 2 * wall, height * generator.uniform(0.4, 0.9)).at(split, 0, 0))
    kind = count(generator, 0, 2)
    if kind == 0:
        open_angle = generator.uniform(0.3, 1.8)
        lid = box(width, depth, wall).at(0, -depth / 2, 0).turned("x", -open_angle)  # hinged at the back
        parts.append(lid.at(0, depth / 2, height))
    elif kind == 1:
        parts.append(box(width * 0.6, depth, wall).at(width * 0.3, 0, height))
    size, x = draw(generator, (0.1, 0.2), (0.2, 0.35))
    ball, brick = sphere(size * 0.8).at(0, 0, size * 0.8), box(size, size, 2 * size).turned("z", 0.5)
    thing = ball if perhaps(generator) else brick
    return [*parts, thing.at(-width * x, depth * 0.1, wall)]


def plant(generator: Generator) -> list[Part]:
    """A pot and a trunk from which pointed leaves hang on all sides."""
    parts, height, radius = _pot(generator)
    trunk, lean = draw(generator, (0.3, 1.2), (-0.3, 0.3))
    parts.append(rod((0, 0, height - 0.05), (lean * radius, 0, height + trunk), 0.06, 0.04))
    leaves = _leaves(generator, count(generator, 9, 16), generator.uniform(0.6, 1.1), (-0.3, 1.2))
    parts += moved(leaves, lean * radius, 0, height + trunk - 0.03)
    if trunk > 0.6:
        parts += moved(_leaves(generator, 4, 0.5, (0.1, 0.9)), lean * radius / 2, 0, height + trunk / 2)
    return parts


def vase(generator: Generator) -> list[Part]:
    """A tall vessel with a swung outline, some with two ears or with flowers."""
    height, radius, lip = draw(generator, (1.2, 2.2), (0.3, 0.55), (0.3, 0.65))
    waves, phase = draw(generator, (0.7, 1.6), (0.0, 2 * math.pi))
    share = np.linspace(0, 1, 14)
    outline = radius * (1 - lip * (0.5 - 0.5 * np.cos(phase + math.pi * waves * share)))
    outer = np.column_stack([outline, share * height])
    inner = (outer - (0.05, 0))[:1:-1]
    parts = [revolved([(0, 0), *outer, *inner, (0, float(inner[-1, 1]))])]
    kind = count(generator, 0, 2)
    if kind == 0:
        low, middle, high = outer[[5, 8, 11]]
        reach = max(low[0], middle[0], high[0]) - min(low[0], high[0]) + 0.25
        for side in (-1, 1):
            start, end = ((side * (radius - 0.04), 0, z) for radius, z in (low, high))
            parts += loop(start, end, (side * reach, 0, 0), 0.05, 0.1)
    elif kind == 1:
        for x, y, tall in (draw(generator, (-0.5, 0.5), (-0.5, 0.5), (0.3, 0.8)) for _ in range(3)):
            parts += [rod((0, 0, height * 0.4), (x, y, height + tall), 0.02), sphere(0.12).at(x, y, height + tall)]
    return parts


def _pot(generator: Generator) -> tuple[list[Part], float, float]:
    """A round or square pot with earth in it; its height and the radius of its rim."""
    bottom, rim, height, lip = draw(generator, (0.25, 0.4), (0.4, 0.55), (0.5, 0.9), (0.03, 0.08))
    if perhaps(generator, 0.35):
        earth = box(2 * rim - 0.1, 1.6 * rim - 0.1, height - 0.08)
        return [*hollow_box(2 * rim, 1.6 * rim, height, 0.05), earth], height, rim
    outside = [(0, 0), (bottom, 0), (rim, height * 0.8), (rim + lip, height * 0.8), (rim + lip, height)]
    return [revolved([*outside, (rim - 0.04, height), (rim - 0.06, height - 0.08), (0, height - 0.08)])], height, rim


def _leaves(generator: Generator, number: int, length: float, rise: tuple[float, float]) -> list[Part]:
    """Flat pointed leaves about the z axis that rise by an angle of this range."""
    parts = []
    for i in range(number):
        scale, wide, up, turn = draw(generator, (0.7, 1.1), (0.09, 0.17), rise, (0, 1.5))
        long = length * scale
        half = [(long * 0.75, wide * 0.7), (long * 0.45, wide), (0, 0.02)]
        other = [(x, -y) for x, y in reversed(half)]
        parts.append(prism([*other, (long, 0), *half], 0.02).turned("y", -up).turned("z", turn + 2.4 * i))
    return parts
