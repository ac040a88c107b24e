"""Machines that stand on a desk or a shelf. The front is towards -y; z is up."""

from __future__ import annotations

import math
from itertools import pairwise

from numpy.random import Generator

from p2plane.data.shapes.draws import count, draw, perhaps
from p2plane.data.shapes.parts import Part, moved, turned
from p2plane.data.shapes.solids import box, cone, cylinder, loop, rod, silhouette, torus


def keyboard(generator: Generator) -> list[Part]:
    """A sloping board with rows of keys, a space bar and, to the right, a second block of keys."""
    width, depth, high, low = draw(generator, (3.2, 4.6), (1.2, 1.6), (0.2, 0.4), (0.08, 0.16))
    side = [(-depth / 2, 0), (depth / 2, 0), (depth / 2, high), (-depth / 2, low)]
    board = silhouette(side, width).turned("z", math.pi / 2)
    rows, block = count(generator, 4, 5), width * generator.uniform(0.16, 0.28)
    pitch, keys = depth * 0.9 / rows, []
    for row in range(rows):
        y = pitch * (row + 0.5) - depth * 0.45
        cuts = [0.2, 0.75] if row == 0 else generator.uniform(0.1, 0.9, size=count(generator, 4, 6)).tolist()
        keys += moved(_key_row(width - block - 0.24, pitch * 0.75, 0.12, cuts), -block / 2 - 0.04, y, 0)
        if row != rows - 2:
            keys.append(box(block, pitch * 0.75, 0.12).at((width - block) / 2 - 0.08, y, 0))
    slope = math.atan2(high - low, depth)
    return [board, *moved(turned(keys, "x", slope), 0, 0, (high + low) / 2 - 0.02)]


def laptop(generator: Generator) -> list[Part]:
    """A flat base with keys, a pad and a plug, and a screen on a hinge, opened by some angle."""
    width, depth, thick, opening = draw(generator, (3.0, 3.8), (2.1, 2.6), (0.12, 0.25), (1.2, 2.3))
    hinge = depth / 2 - 0.06
    screen = [box(width, 0.08, depth * 0.97), box(width * 0.9, 0.1, depth * 0.8).at(0, -0.03, depth * 0.1)]
    parts = [box(width, depth, thick), *moved(turned(screen, "x", math.pi / 2 - opening), 0, hinge, thick + 0.03)]
    parts.append(rod((-width * 0.4, hinge, thick), (width * 0.4, hinge, thick), 0.07))
    rows = count(generator, 4, 5)
    pitch = depth * 0.5 / rows
    for row in range(rows):
        keys = _key_row(width * 0.88, pitch * 0.7, 0.05, [generator.uniform(0.15, 0.85)])
        parts += moved(keys, 0, depth * 0.36 - pitch * (row + 0.5), thick)
    parts.append(box(0.9, 0.6, 0.02).at(width * generator.uniform(-0.15, 0.15), -depth * 0.33, thick))
    return [*parts, box(0.3, 0.2, 0.08).at(width / 2 + 0.15, 0.2, thick * 0.3)]


def monitor(generator: Generator) -> list[Part]:
    """A screen with a bezel and a housing behind, tilted and turned on a neck with a foot; buttons at one corner."""
    width, height, bezel, thick = draw(generator, (0.45, 0.8), (0.3, 0.42), (0.015, 0.04), (0.03, 0.07))
    lift, tilt, swivel = draw(generator, (0.08, 0.2), (-0.05, 0.25), (-0.4, 0.4))
    front, edge = -thick / 2 - 0.0075, (width - bezel) / 2
    panel = [box(width, thick, height), box(width * 0.5, thick + 0.08, height * 0.5).at(0, 0.04, height * 0.2)]
    panel += [box(width, 0.015, bezel).at(0, front, z) for z in (0, height - bezel)]
    panel += [box(bezel, 0.015, height - 2 * bezel).at(x, front, bezel) for x in (-edge, edge)]
    for i in range(count(generator, 2, 4)):
        panel.append(box(0.02, 0.02, 0.01).at(width * 0.42 - 0.035 * i, -thick / 2, -0.01))
    parts = moved(turned(turned(panel, "x", -tilt), "z", swivel), 0, 0, lift)
    top = lift + height * 0.4
    neck = rod((0, 0.07, 0.01), (0, 0.05, top), 0.03) if perhaps(generator) else box(0.1, 0.04, top).at(0, 0.07, 0)
    foot = cylinder(width * 0.25, 0.02) if perhaps(generator) else box(width * 0.5, 0.22, 0.02)
    return [*parts, neck, foot.at(0, 0.05, 0)]


def radio(generator: Generator) -> list[Part]:
    """A box with one or two loudspeakers, a dial, knobs, perhaps a handle, and a slanting antenna."""
    width, depth, height, tilt, reach = draw(generator, (1.6, 2.8), (0.5, 0.9), (0.9, 1.5), (-0.9, 0.9), (0.7, 1.4))
    front, size = -depth / 2, height * generator.uniform(0.28, 0.38)
    parts = [box(width, depth, height)]
    speakers = [size * 1.25 - width / 2]
    left, right = speakers[0] + size * 1.2, width / 2 - 0.08
    if right - left > 2 * size + 0.6 and perhaps(generator):
        speakers.append(-speakers[0])
        right = -left
    for x in speakers:
        parts.append(torus(size, 0.06).turned("x", math.pi / 2).at(x, front, height * 0.5))
        parts.append(cone(size * 0.6, size * 0.2, 0.1).turned("x", math.pi / 2).at(x, front + 0.01, height * 0.5))
    parts.append(box((right - left) * 0.9, 0.08, height * 0.22).at((left + right) / 2, front, height * 0.65))
    knob, knobs = cylinder(height * 0.09, 0.16).turned("x", math.pi / 2), count(generator, 2, 3)
    parts += [knob.at(left + (right - left) * (i + 0.5) / knobs, front + 0.02, height * 0.3) for i in range(knobs)]
    if perhaps(generator, 0.7):
        start, end = ((x, 0, height - 0.02) for x in (-width * 0.35, width * 0.35))
        parts += loop(start, end, (0, 0, 0.35), 0.06, 0.12)
    tip = (width * 0.42 + reach * math.sin(tilt), depth * 0.3, height + reach * math.cos(tilt))
    return [*parts, rod((width * 0.42, depth * 0.3, height - 0.02), tip, 0.03, 0.02)]


def xbox(generator: Generator) -> list[Part]:
    """A console, lying or upright, with a tray, ribs and a button, and a controller before it."""
    width, depth, height, dent = draw(generator, (2.6, 3.4), (2.2, 2.8), (0.5, 0.9), (0.03, 0.1))
    parts = [box(width, depth, height), box(width * 0.4, depth * 0.7, dent).at(-width * 0.2, 0.1, height)]
    parts.append(box(width * 0.5, 0.08, height * 0.22).at(-width * 0.15, -depth / 2, height * 0.55))
    button = cylinder(height * 0.13, 0.1).turned("x", math.pi / 2)
    parts.append(button.at(width * 0.35, -depth / 2 + 0.02, height * 0.5))
    ribs = count(generator, 3, 6)
    parts += [box(0.08, depth * 0.5, 0.08).at(width * (0.15 + 0.3 * i / ribs), 0.2, height) for i in range(ribs)]
    if perhaps(generator, 0.4):
        parts = moved(turned(parts, "y", math.pi / 2), -height / 2, 0, width / 2)
    x, turn = draw(generator, (-0.6, 1.0), (-0.6, 0.6))
    return parts + moved(turned(_controller(), "z", turn), x, -depth / 2 - 1.2, 0)


def _controller() -> list[Part]:
    grips = [rod((side * 0.42, 0.1, 0.14), (side * 0.65, -0.5, 0.1), 0.17, 0.1) for side in (-1, 1)]
    sticks = [cylinder(0.09, 0.14).at(x, y, 0.22) for x, y in ((-0.28, 0.1), (0.15, -0.1))]
    return [box(0.9, 0.5, 0.25), *grips, *sticks, torus(0.14, 0.04).at(0.3, 0.12, 0.25)]


def _key_row(width: float, depth: float, height: float, cuts: list[float]) -> list[Part]:
    """A row of keys about the origin, cut at these shares of its width; slivers are left out."""
    keys = []
    for start, end in pairwise([0.0, *sorted(cuts), 1.0]):
        wide = width * (end - start) - 0.05
        if wide > 0.05:
            keys.append(box(wide, depth, height).at(width * ((start + end) / 2 - 0.5), 0, 0))
    return keys
