"""Furniture. The front is towards -y, x runs to the right and z upwards; sizes are in metres."""

from __future__ import annotations

import math

from numpy.random import Generator

from p2plane.data.shapes.draws import count, draw, either_side, perhaps
from p2plane.data.shapes.parts import Part, moved
from p2plane.data.shapes.solids import at_corners, box, case, cone, cylinder, loop, pipe, rod, silhouette, torus


def bed(generator: Generator) -> list[Part]:
    """A frame on feet, a mattress, pillows, and a board at the head or at both ends."""
    width, length, floor, head, thick = draw(generator, (0.9, 1.9), (1.9, 2.1), (0.1, 0.3), (0.3, 0.8), (0.12, 0.28))
    frame = box(width, length, 0.15).at(0, 0, floor)
    mattress = box(width * 0.96, length * 0.96, thick).at(0, 0, floor + 0.15)
    board = box(width + 0.06, 0.06, floor + 0.15 + head).at(0, length / 2 + 0.03, 0)
    parts = [frame, mattress, board, *at_corners(box(0.08, 0.08, floor), width - 0.1, length - 0.1)]
    pillows = 1 if width < 1.3 else 2
    pillow = box(width / pillows * 0.8, generator.uniform(0.35, 0.55), 0.12).turned("x", 0.15)
    for i in range(pillows):
        parts.append(pillow.at(width * ((i + 0.5) / pillows - 0.5), length / 2 - 0.4, floor + 0.14 + thick))
    if perhaps(generator):
        parts.append(box(width + 0.06, 0.06, floor + 0.15 + head * 0.4).at(0, -length / 2 - 0.03, 0))
    if perhaps(generator):  # a folded blanket
        parts.append(box(width * 1.02, length * 0.25, 0.05).at(0, -length * 0.25, floor + 0.13 + thick))
    return parts


def bench(generator: Generator) -> list[Part]:
    """A seat of planks on two trestles, often with a back, sometimes with arms."""
    width, depth, height, foot = draw(generator, (1.0, 2.0), (0.35, 0.5), (0.4, 0.5), (0.05, 0.12))
    planks = count(generator, 2, 5)
    plank = box(width, depth / planks * 0.8, 0.04)
    parts = [plank.at(0, depth * ((i + 0.5) / planks - 0.5), height) for i in range(planks)]
    trestle = box(foot, depth * 0.95, height)
    supports = [-width * 0.4, width * 0.4]
    parts += [trestle.at(x, 0, 0) for x in supports]
    if perhaps(generator, 0.7):
        lean, rails = generator.uniform(0.05, 0.3), count(generator, 1, 3)
        back = [box(foot, 0.05, 0.5).at(x, 0, 0) for x in supports]
        back += [box(width, 0.03, 0.09).at(0, -0.04, 0.48 - 0.14 * (i + 0.6)) for i in range(rails)]
        parts += [part.turned("x", -lean).at(0, depth / 2 - 0.03, height - 0.02) for part in back]
    if perhaps(generator, 0.4):
        arm = silhouette([(0, 0), (foot, 0), (foot, 0.22), (0, 0.22)], depth * 0.8)
        parts += [arm.at(x - foot / 2, 0, height + 0.04) for x in supports]
    return parts


def bookshelf(generator: Generator) -> list[Part]:
    """An open case with shelves, and rows of books that lean on the left of some of them."""
    width, depth, height = draw(generator, (0.6, 1.4), (0.25, 0.4), (1.2, 2.2))
    shelves, wall = count(generator, 3, 6), 0.03
    parts = case(width, depth, height, wall)
    spacing = (height - wall) / shelves
    parts += [box(width - 2 * wall, depth - wall, wall).at(0, -wall / 2, i * spacing) for i in range(1, shelves)]
    for i in range(shelves):
        x, end = wall - width / 2, width * generator.uniform(-0.5, 0.45)
        while x < end:
            thick, tall, deep = draw(generator, (0.05, 0.2), (0.55, 0.9), (0.5, 0.85))
            thick = min(thick, width / 2 - wall - x)
            parts.append(box(thick, depth * deep, (spacing - wall) * tall).at(x + thick / 2, 0, i * spacing + wall))
            x += thick + 0.004
    return parts


def chair(generator: Generator) -> list[Part]:
    """A seat and a leaning back, on four legs or on a column with a star of feet; sometimes with arms."""
    width, depth, height, back, lean = draw(generator, (0.4, 0.55), (0.4, 0.52), (0.4, 0.5), (0.35, 0.65), (0.05, 0.3))
    parts = [box(width, depth, 0.05).at(0, 0, height)]
    if perhaps(generator, 0.7):
        thick = generator.uniform(0.03, 0.06)
        leg = box(thick, thick, height) if perhaps(generator) else cone(thick * 0.35, thick * 0.6, height)
        parts += at_corners(leg, width - thick, depth - thick)
    else:
        parts += [cylinder(0.035, height), *_star(count(generator, 4, 5), width * 0.55)]
    rest = [box(0.04, 0.03, back).at(x, 0, 0) for x in (-width / 2 + 0.02, width / 2 - 0.02)]
    if perhaps(generator):
        rest += [box(width - 0.08, 0.03, back * 0.5).at(0, 0, back * 0.48)]
    else:
        slats = count(generator, 2, 5)
        rest += [box(0.03, 0.02, back).at((width - 0.04) * ((i + 1) / (slats + 1) - 0.5), 0, 0) for i in range(slats)]
        rest += [box(width - 0.08, 0.03, 0.08).at(0, 0, back - 0.08)]
    parts += [part.turned("x", -lean).at(0, depth / 2 - 0.03, height + 0.02) for part in rest]
    if perhaps(generator, 0.4):
        path = [(0, -depth * 0.35, 0), (0, -depth * 0.35, 0.2), (0, depth * 0.5, 0.2)]
        for x in (-width / 2 + 0.02, width / 2 - 0.02):
            parts += moved(pipe(path, 0.018, 0.05), x, 0, height + 0.04)
    return parts


def desk(generator: Generator) -> list[Part]:
    """A top with drawers under one end, a panel or legs at the other, and sometimes a shelf above."""
    width, depth, height, chest = draw(generator, (1.1, 1.8), (0.55, 0.8), (0.7, 0.78), (0.35, 0.5))
    side = either_side(generator)
    parts = [box(width, depth, 0.04).at(0, 0, height)]
    x = side * (width - chest) / 2
    parts += moved(_drawers(chest, depth - 0.1, height - 0.05, 1, count(generator, 2, 4)), x, 0, 0.05)
    parts.append(box(chest - 0.06, depth - 0.16, 0.05).at(x, 0, 0))
    if perhaps(generator):
        parts.append(box(0.04, depth - 0.06, height).at(-side * (width / 2 - 0.05), 0, 0))
    else:
        leg = box(0.06, 0.06, height)
        parts += [leg.at(-side * (width / 2 - 0.06), y, 0) for y in (-depth / 2 + 0.06, depth / 2 - 0.06)]
    if perhaps(generator):
        parts.append(box(width - chest, 0.02, height * 0.5).at(-side * chest / 2, depth / 2 - 0.1, height * 0.5))
    if perhaps(generator, 0.4):
        tall = generator.uniform(0.25, 0.5)
        parts += moved(case(width * 0.5, 0.25, tall, 0.02), -side * width * 0.2, depth / 2 - 0.13, height + 0.04)
    return parts


def dresser(generator: Generator) -> list[Part]:
    """A chest of drawers on feet, often with a mirror."""
    width, depth, height, foot = draw(generator, (0.8, 1.5), (0.4, 0.55), (0.65, 1.1), (0.05, 0.15))
    parts = at_corners(cone(0.025, 0.045, foot), width - 0.12, depth - 0.12)
    parts += moved(_drawers(width, depth, height, count(generator, 1, 3), count(generator, 2, 4)), 0, 0, foot)
    parts.append(box(width + 0.06, depth + 0.06, 0.04).at(0, 0, foot + height))
    if perhaps(generator):
        wide, tall, shift = draw(generator, (0.4, 0.8), (0.5, 0.8), (-0.1, 0.1))
        mirror = box(width * wide, 0.05, tall).turned("x", -0.1)
        parts.append(mirror.at(width * shift, depth / 2 - 0.05, foot + height + 0.03))
    return parts


def night_stand(generator: Generator) -> list[Part]:
    """A small case on legs with drawers below or above an open shelf, and perhaps a book on top."""
    width, depth, height, leg = draw(generator, (0.4, 0.6), (0.35, 0.5), (0.35, 0.5), (0.08, 0.3))
    parts = at_corners(cone(0.015, 0.03, leg), width - 0.08, depth - 0.08)
    parts += moved(case(width, depth, height, 0.03), 0, 0, leg)
    share = generator.uniform(0.35, 0.6) * (height - 0.06)
    base = leg + 0.03 + (0 if perhaps(generator) else height - 0.06 - share)
    parts += moved(_drawers(width - 0.06, depth - 0.03, share, 1, count(generator, 1, 2)), 0, -0.015, base)
    if perhaps(generator, 0.7):
        x, y, angle = draw(generator, (-0.1, 0.1), (-0.08, 0.08), (0, math.pi))
        parts.append(box(0.14, 0.2, 0.04).turned("z", angle).at(x, y, leg + height))
    return parts


def sofa(generator: Generator) -> list[Part]:
    """A base with a back, arms and loose cushions; sometimes with a long seat at one end."""
    width, depth, seat, back, arm = draw(generator, (1.2, 2.4), (0.75, 0.95), (0.25, 0.35), (0.35, 0.5), (0.12, 0.25))
    inner, cushions = width - 2 * arm, max(1, round(width / 0.75) - count(generator, 0, 1))
    parts = [box(width, depth, seat - 0.05).at(0, 0, 0.05)]
    parts += at_corners(box(0.06, 0.06, 0.05), width - 0.1, depth - 0.1)
    parts.append(box(inner, 0.18, back).at(0, depth / 2 - 0.09, seat))
    parts += [box(arm, depth, back * 0.55).at(x, 0, seat) for x in (-(width - arm) / 2, (width - arm) / 2)]
    for i in range(cushions):
        x = inner * ((i + 0.5) / cushions - 0.5)
        parts.append(box(inner / cushions - 0.02, depth - 0.2, 0.13).at(x, -0.1, seat))
        pillow = box(inner / cushions - 0.06, 0.14, back * 0.9).turned("x", -0.25)
        parts.append(pillow.at(x, depth / 2 - 0.35, seat + 0.12))
    if perhaps(generator, 0.4):
        side = either_side(generator)
        parts.append(box(inner / 2, 0.6, seat + 0.08).at(side * (inner / 4 + arm), -depth / 2 - 0.3, 0.05))
    return parts


def stool(generator: Generator) -> list[Part]:
    """A round or square seat on three or four splayed legs with rungs."""
    radius, height, splay, thick, low = draw(
        generator, (0.15, 0.22), (0.4, 0.8), (1.0, 1.5), (0.012, 0.025), (0.2, 0.5)
    )
    legs = count(generator, 3, 4)
    round_seat = legs == 3 or perhaps(generator)
    parts = [cylinder(radius, 0.04) if round_seat else box(1.6 * radius, 1.6 * radius, 0.04)]
    parts = moved(parts, 0, 0, height)
    angles = [math.pi / 4 + 2 * math.pi * i / legs for i in range(legs)]
    top, foot = radius * 0.75, radius * splay
    at_rung = foot + (top - foot) * low
    for i, angle in enumerate(angles):
        bottom, seat = ((r * math.cos(angle), r * math.sin(angle), z) for r, z in ((foot, 0), (top, height)))
        parts.append(rod(bottom, seat, thick, thick * 1.2))
        level = height * low + (0.04 * (i % 2) if legs == 4 else 0)
        here, there = ((at_rung * math.cos(a), at_rung * math.sin(a), level) for a in (angle, angles[i - 1]))
        parts.append(rod(here, there, thick * 0.7))
    if perhaps(generator, 0.3):  # a low back
        start, end = ((x, radius * 0.6, height + 0.02) for x in (-radius * 0.7, radius * 0.7))
        parts += loop(start, end, (0, 0, 0.25), thick * 0.8, 0.06)
    return parts


def table(generator: Generator) -> list[Part]:
    """A long or round top on four legs, on trestles or on a column with a star of feet."""
    width, depth, height, thick = draw(generator, (1.0, 2.2), (0.7, 1.1), (0.45, 0.78), (0.02, 0.06))
    kind = count(generator, 0, 2)
    if kind == 0:
        leg = box(0.07, 0.07, height) if perhaps(generator) else cone(0.025, 0.045, height)
        parts = at_corners(leg, width - 0.2, depth - 0.2)
        parts += [box(width - 0.2, 0.02, 0.1).at(0, y, height - 0.1) for y in (-depth / 2 + 0.1, depth / 2 - 0.1)]
    elif kind == 1:
        trestle = silhouette([(-0.3, 0), (0.3, 0), (0.12, height), (-0.12, height)], 0.05).turned("z", math.pi / 2)
        parts = [trestle.at(x, 0, 0) for x in (-width * 0.36, width * 0.36)]
        parts.append(box(width * 0.72, 0.04, 0.1).at(0, 0, height * generator.uniform(0.2, 0.6)))
    else:
        parts = [cylinder(0.05, height), *_star(count(generator, 3, 5), 0.4)]
        if perhaps(generator):
            return [*parts, cylinder(depth * 0.55, thick).at(0, 0, height)]
    return [*parts, box(width, depth, thick).at(0, 0, height)]


def tv_stand(generator: Generator) -> list[Part]:
    """A low, wide case with a shelf in one half and drawers in the other."""
    width, depth, height, split, leg = draw(generator, (1.1, 2.0), (0.35, 0.5), (0.3, 0.5), (0.35, 0.65), (0.05, 0.2))
    wall, inner = 0.03, width - 0.06
    parts = [
        *case(width, depth, height, wall),
        *at_corners(box(0.05, 0.05, leg).at(0, 0, -leg), width - 0.1, depth - 0.1),
    ]
    x = inner * (split - 0.5)
    parts.append(box(wall, depth - wall, height - 2 * wall).at(x, -wall / 2, wall))
    left, right = inner * split - wall / 2, inner * (1 - split) - wall / 2
    parts.append(box(left, depth - wall, 0.02).at(-inner / 2 + left / 2, -wall / 2, height * 0.5))
    chest = _drawers(right, depth - wall, height - 2 * wall, count(generator, 1, 2), count(generator, 1, 3))
    parts += moved(chest, inner / 2 - right / 2, -wall / 2, wall)
    if perhaps(generator, 0.6):  # a player on the shelf
        parts.append(box(left * 0.7, depth * 0.6, 0.06).at(-inner / 2 + left / 2, -0.02, wall))
    return moved(parts, 0, 0, leg)


def wardrobe(generator: Generator) -> list[Part]:
    """A tall case with two or three doors, of which one may stand open, above drawers or a plinth."""
    width, depth, height, base = draw(generator, (0.9, 1.8), (0.5, 0.65), (1.8, 2.2), (0.08, 0.4))
    doors, wall = count(generator, 2, 3), 0.03
    parts = moved(case(width, depth, height - base, wall), 0, 0, base)
    parts += _drawers(width, depth, base, doors, 1) if base > 0.2 else [box(width - 0.04, depth - 0.04, base)]
    parts.append(box(width - 2 * wall, depth - wall, wall).at(0, -wall / 2, base + (height - base) * 0.75))
    wide, open_door = width / doors - 0.01, count(generator, 0, 2 * doors)
    for i in range(doors):
        leaf = [
            box(wide, 0.03, height - base - 0.01),
            box(0.02, 0.03, 0.25).at(wide * 0.4, -0.03, (height - base) * 0.4),
        ]
        swing = -generator.uniform(0.6, 1.7) if i == open_door else 0.0
        leaf = [part.at(wide / 2, 0, 0).turned("z", swing) for part in leaf]  # hung on its left edge
        parts += moved(leaf, width * (i / doors - 0.5) + 0.005, -depth / 2 - 0.015, base)
    if perhaps(generator):
        parts.append(box(width + 0.08, depth + 0.08, 0.06).at(0, 0, height))
    return parts


def _drawers(width: float, depth: float, height: float, columns: int, rows: int) -> list[Part]:
    """A block with a grid of drawer fronts, each with a knob, standing on the origin."""
    parts = [box(width, depth, height)]
    wide, tall = width / columns, height / rows
    front = box(wide * 0.9, 0.02, tall * 0.86)
    knob = cylinder(0.018, 0.04).turned("x", math.pi / 2)
    for i in range(columns):
        for j in range(rows):
            x, z = wide * (i + 0.5) - width / 2, tall * j
            parts += [front.at(x, -depth / 2 - 0.01, z + tall * 0.07), knob.at(x, -depth / 2 - 0.015, z + tall * 0.6)]
    return parts


def _star(feet: int, reach: float) -> list[Part]:
    """Feet that run out from a column to small castors, and a ring that holds them."""
    foot = rod((0, 0, 0.09), (reach, 0, 0.05), 0.03, 0.02)
    castor = cylinder(0.035, 0.03).turned("x", math.pi / 2).at(reach, 0.015, 0.035)
    turns = [0.3 + 2 * math.pi * i / feet for i in range(feet)]
    return [torus(0.06, 0.02).at(0, 0, 0.09), *(part.turned("z", turn) for turn in turns for part in (foot, castor))]
