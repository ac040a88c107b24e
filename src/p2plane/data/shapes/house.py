"""Things of a house and around it. The front is towards -y, x runs to the right and z upwards; sizes are in metres."""

from __future__ import annotations

import math

from numpy.random import Generator

from p2plane.data.shapes.draws import count, draw, either_side, perhaps
from p2plane.data.shapes.parts import Part, moved
from p2plane.data.shapes.solids import (
    at_corners,
    box,
    cone,
    cylinder,
    hollow_box,
    pipe,
    revolved,
    rod,
    silhouette,
    sphere,
    torus,
)


def bathtub(generator: Generator) -> list[Part]:
    """A tub with a rim and a sloping end, on feet or on the floor, and a tap."""
    width, depth, height, rim, slope = draw(generator, (1.4, 1.9), (0.65, 0.9), (0.4, 0.55), (0.03, 0.08), (0.15, 0.4))
    parts = hollow_box(width, depth, height, 0.05)
    inside = -width / 2 + 0.05
    top = height - 0.02
    wedge = [(inside, 0.05), (inside + slope, 0.05), (inside + slope * 0.2, top), (inside, top)]
    parts.append(silhouette(wedge, depth - 0.1))
    for sign in (-1, 1):
        parts.append(box(width + 2 * rim, rim, 0.04).at(0, sign * (depth + rim) / 2, height - 0.04))
        parts.append(box(rim, depth, 0.04).at(sign * (width + rim) / 2, 0, height - 0.04))
    tap = [(0, 0, 0), (0, 0, 0.25), (-0.18, 0, 0.25), (-0.18, 0, 0.2)]
    if perhaps(generator):
        parts += moved(pipe(tap, 0.02, 0.035), width / 2 - 0.02, generator.uniform(-0.2, 0.2), height)
    else:
        turned_tap = [(y, x, z) for x, y, z in tap]
        parts += moved(pipe(turned_tap, 0.02, 0.035), width * 0.2, depth / 2 - 0.02, height)
    if perhaps(generator):
        parts += [foot.at(0, 0, -0.11) for foot in at_corners(cone(0.03, 0.05, 0.11), width - 0.25, depth - 0.2)]
    return parts


def curtain(generator: Generator) -> list[Part]:
    """Two pleated lengths of cloth, drawn aside by different amounts, on a rod with knobs."""
    width, height = draw(generator, (1.4, 2.4), (1.5, 2.3))
    parts = [rod((-width / 2, 0, height), (width / 2, 0, height), 0.02)]
    parts += [sphere(0.045).at(x, 0, height) for x in (-width / 2, width / 2)]
    parts += [rod((x, 0, height), (x, 0.12, height), 0.015) for x in (-width * 0.46, width * 0.46)]
    for side in (-1, 1):
        share, drop = draw(generator, (0.12, 0.42), (0.75, 0.97))
        pleats = max(3, round(width * share / 0.11))
        step = width * share / pleats
        for i in range(pleats):
            radius, waist, shift = draw(generator, (0.5, 0.75), (0.5, 0.95), (-0.02, 0.02))
            radius *= step
            profile = [(0, 0), (radius, 0), (radius * waist, height * drop * 0.6), (radius * 0.8, height * drop)]
            pleat = revolved([*profile, (0, height * drop)])
            parts.append(pleat.at(side * (width * 0.47 - step * (i + 0.5)), shift, height * (1 - drop)))
    return parts


def door(generator: Generator) -> list[Part]:
    """A leaf with raised panels and a handle in its frame; often it stands open."""
    width, height, thick, post = draw(generator, (0.7, 1.1), (1.9, 2.2), (0.03, 0.06), (0.06, 0.14))
    leaf = [box(width, thick, height)]
    rows, columns = count(generator, 1, 3), count(generator, 1, 2)
    panel = box(width / columns * 0.68, thick + 0.03, height / rows * 0.75)
    for i in range(columns):
        for j in range(rows):
            leaf.append(panel.at(width * ((i + 0.5) / columns - 0.5), 0, height * (j + 0.12) / rows))
    handle = [(0, 0, 0), (0, -0.09, 0), (-0.14, -0.09, 0)]
    leaf += moved(pipe(handle, 0.016, 0.03), width * 0.45, 0, height * 0.47)
    swing = -generator.uniform(0.2, 1.5) if perhaps(generator, 0.6) else 0.0
    parts = [part.at(width / 2, 0, 0).turned("z", swing).at(-width / 2, 0, 0) for part in leaf]  # hung on its left
    sides = box(post, 0.12, height + post)
    parts += [sides.at(x, 0.02, 0) for x in (-(width + post) / 2, (width + post) / 2)]
    return [*parts, box(width, 0.12, post).at(0, 0.02, height)]


def lamp(generator: Generator) -> list[Part]:
    """A lamp with jointed arms, one that hangs over from a bent pole, or a table lamp with a cord."""
    base, height, reach, shade = draw(generator, (0.1, 0.16), (0.4, 0.7), (0.2, 0.45), (0.08, 0.16))
    parts = [cone(base, base * 0.85, 0.03)]
    kind = count(generator, 0, 2)
    if kind == 0:
        lean, elbow = generator.uniform(-0.2, 0.1), height * 0.7
        joint, end = (lean, 0, elbow), (lean + reach, 0, elbow + generator.uniform(-0.05, 0.25))
        parts += [rod((0, 0, 0.02), joint, 0.012), rod(joint, end, 0.012), sphere(0.025).at(*joint)]
        tilt = generator.uniform(-0.7, 0.2)
        return parts + [part.turned("y", tilt).at(*end) for part in _shade(shade, 0.16)]
    if kind == 1:
        drop = height * generator.uniform(1.2, 1.7)
        path = [(0, 0, 0), (0, 0, drop), (reach, 0, drop), (reach, 0, drop - 0.15)]
        parts += [box(2 * base, 1.6 * base, 0.04), *pipe(path, 0.015, min(0.1, reach * 0.4))]
        return parts + moved(_shade(shade * 1.2, 0.15), reach, 0, drop - 0.13)
    body = [(0, 0.02), (0.05, 0.02), (0.09, height * 0.25), (0.03, height * 0.5), (0.02, height * 0.7)]
    parts += [revolved([*body, (0, height * 0.7)]), *moved(_shade(shade * 1.4, 0.22), 0, 0, height * 0.7 + 0.12)]
    cord = [(0, 0, 0.012), (0.25, 0, 0.012), (0.25, 0.2, 0.012), (0.35, 0.2, 0.012)]
    return [*parts, *pipe(cord, 0.012, 0.06), box(0.06, 0.04, 0.04).at(0.36, 0.2, 0)]


def mantel(generator: Generator) -> list[Part]:
    """Two pillars, a lintel and a shelf about a hearth, with a clock or a vase on the shelf."""
    width, height, depth, pillar = draw(generator, (1.2, 1.8), (1.0, 1.3), (0.2, 0.4), (0.15, 0.28))
    x = (width - pillar) / 2
    parts = [box(width, 0.06, height).at(0, depth / 2 + 0.03, 0)]
    for sign in (-1, 1):
        parts.append(box(pillar + 0.04, depth + 0.02, 0.12).at(sign * x, -0.01, 0))
        shaft = box(pillar, depth, height) if perhaps(generator) else cylinder(pillar * 0.45, height)
        parts.append(shaft.at(sign * x, 0, 0))
    beam = generator.uniform(0.15, 0.3)
    parts.append(box(width, depth * 0.8, beam).at(0, depth * 0.1, height - beam))
    parts.append(box(width + 0.16, depth + 0.14, 0.06).at(0, -0.04, height))
    parts.append(box(width + 0.1, depth * 0.8, 0.04).at(0, -depth * 0.7, 0))
    spot = width * generator.uniform(0.15, 0.4) * either_side(generator)
    parts.append(box(0.18, 0.1, 0.24).at(spot, 0, height + 0.06))
    return [*parts, cone(0.06, 0.09, 0.22).at(-spot * 0.8, 0, height + 0.06)]


def range_hood(generator: Generator) -> list[Part]:
    """A sloping canopy over a rim, a chimney, and knobs on the rim."""
    width, depth, rim, slope, chimney = draw(generator, (0.6, 1.0), (0.45, 0.55), (0.05, 0.1), (0.15, 0.35), (0.4, 0.8))
    thin = depth * generator.uniform(0.45, 0.65)
    side = [(-depth / 2, 0), (depth / 2, 0), (depth / 2, slope), (depth / 2 - thin, slope)]
    canopy = silhouette(side, width * generator.uniform(0.85, 1.0) - 0.01).turned("z", math.pi / 2)
    parts = [box(width, depth, rim), canopy.at(0, 0, rim)]
    shaft = box(width * 0.4, thin - 0.02, chimney)
    parts.append(shaft.at(width * generator.uniform(-0.1, 0.1), depth / 2 - thin / 2 - 0.005, rim + slope))
    knob = cylinder(rim * 0.3, 0.03).turned("x", math.pi / 2)
    for i in range(count(generator, 2, 4)):
        parts.append(knob.at(width * 0.42 - 0.08 * i, -depth / 2 + 0.005, rim / 2))
    parts += [cylinder(0.05, 0.02).at(x, -depth * 0.2, -0.015) for x in (-width * 0.3, width * 0.3)]
    return parts


def sink(generator: Generator) -> list[Part]:
    """A basin in a counter with a draining board, or a basin on a column; a tap stands behind."""
    width, depth, deep, tall = draw(generator, (0.7, 1.2), (0.45, 0.6), (0.15, 0.25), (0.15, 0.35))
    tap = [(0, 0, 0), (0, 0, tall), (0, -0.2, tall), (0, -0.2, tall - 0.08)]
    if perhaps(generator, 0.3):
        radius = depth * 0.45
        basin = [(0, 0), (radius * 0.5, 0), (radius, deep), (radius * 0.9, deep), (radius * 0.45, 0.04), (0, 0.04)]
        parts = [revolved(basin), cone(0.11, 0.07, 0.7).at(0, 0, -0.7)]
        parts.append(box(0.36, 0.16, 0.05).at(0, radius, deep - 0.05))
        return parts + moved(pipe(tap, 0.018, 0.05), 0, radius + 0.02, deep)
    bowl, side = width * generator.uniform(0.4, 0.6), either_side(generator)
    parts = moved(hollow_box(bowl, depth - 0.12, deep, 0.02), side * (width - bowl) / 2, -0.06, 0)
    parts.append(box(width, 0.12, 0.03).at(0, depth / 2 - 0.06, deep - 0.03))
    board = width - bowl
    parts.append(box(board, depth - 0.12, 0.03).at(-side * bowl / 2, -0.06, deep - 0.03))
    ridges = count(generator, 3, 6)
    for i in range(ridges):
        x = -side * bowl / 2 + board * ((i + 1) / (ridges + 1) - 0.5)
        parts.append(box(0.015, depth * 0.6, 0.02).at(x, -0.06, deep))
    parts.append(cylinder(0.04, 0.1).at(side * (width - bowl) / 2, -0.06, -0.1))
    return parts + moved(pipe(tap, 0.018, 0.05), side * (width / 2 - bowl * 0.6), depth / 2 - 0.06, deep - 0.01)


def stairs(generator: Generator) -> list[Part]:
    """Steps, solid or as boards on a beam, with a rail along one side."""
    steps = count(generator, 4, 8)
    width, run, rise, rail = draw(generator, (0.8, 1.4), (0.22, 0.32), (0.15, 0.22), (0.7, 0.95))
    solid = perhaps(generator)
    parts = []
    for i in range(steps):
        tall = rise * (i + 1) if solid else 0.05
        parts.append(box(width, run + (0 if solid else 0.04), tall).at(0, run * i, rise * (i + 1) - tall))
    slope = math.atan2(rise, run)
    if not solid:
        beam = box(0.08, math.hypot(run, rise) * (steps - 0.4), 0.12).turned("x", slope)
        middle = run * (steps - 1) / 2, rise * steps / 2 - 0.1
        parts += [beam.at(x, *middle) for x in (-width * 0.3, width * 0.3)]
    x = (width / 2 - 0.04) * either_side(generator)
    for i in range(0, steps, count(generator, 1, 2)):
        parts.append(cylinder(0.018, rail).at(x, run * i, rise * (i + 1)))
    top = run * (steps - 1), rise * steps + rail
    return [*parts, rod((x, -0.08, rise + rail - 0.05), (x, top[0] + 0.08, top[1] + 0.05), 0.035)]


def tent(generator: Generator) -> list[Part]:
    """A ridge tent with a lower porch, poles and guys, or a dome with a tunnel and a window."""
    return _ridge_tent(generator) if perhaps(generator, 0.65) else _dome_tent(generator)


def _ridge_tent(generator: Generator) -> list[Part]:
    width, length, height = draw(generator, (1.4, 2.2), (1.8, 2.6), (1.0, 1.5))
    wall, porch, low = draw(generator, (0.05, 0.35), (0.4, 0.9), (0.55, 0.85))
    side = [(-width / 2, 0), (width / 2, 0), (width / 2, wall), (0, height), (-width / 2, wall)]
    entry = [(x * 0.7, z * low) for x, z in side]
    parts = [silhouette(side, length), silhouette(entry, porch).at(0, -(length + porch) / 2, 0)]
    parts += [cylinder(0.025, height * 1.06).at(0, y, 0) for y in (-length * 0.47, length * 0.47)]
    parts += [rod((0, length / 2, height), (0, length / 2 + 0.5, 0), 0.02)]
    for sign in (-1, 1):
        eave, peg = sign * width * 0.45, sign * (width / 2 + 0.2)
        parts += [rod((eave, y, wall + 0.1), (peg, y, 0), 0.015) for y in (-0.6, 0.6)]
    return parts


def _dome_tent(generator: Generator) -> list[Part]:
    width, height, wide, tall, long = draw(generator, (1.4, 2.2), (1.0, 1.5), (0.3, 0.45), (0.5, 0.7), (0.7, 1.1))
    arc = [math.pi / 2 * i / 8 for i in range(9)]
    dome = revolved([(0, 0), *((max(0, width * 0.6 * math.cos(a)), height * math.sin(a)) for a in arc)])
    gate = [(width * wide * math.cos(a * 2), height * tall * math.sin(a * 2)) for a in arc]
    window = box(1.5 * wide, 0.5, 0.25 * height).turned("z", generator.uniform(-0.6, 0.6))
    parts = [dome, silhouette(gate, width * long).at(0, -width * long / 2, 0)]
    return [*parts, window.at(0, width * 0.4, height * 0.2), torus(width * 0.6, 0.02).at(0, 0, 0.02)]


def toilet(generator: Generator) -> list[Part]:
    """A bowl on a foot with a seat, a lid that is up or down, and a cistern with a lever."""
    radius, height = draw(generator, (0.18, 0.22), (0.36, 0.42))
    tank, deep, tall = draw(generator, (0.36, 0.48), (0.15, 0.22), (0.3, 0.42))
    bowl = [(0, 0.12), (radius * 0.6, 0.12), (radius, height), (radius * 0.82, height), (radius * 0.4, 0.2), (0, 0.2)]
    parts = [revolved(bowl), cone(radius * 0.75, radius * 0.6, 0.14), box(radius, 0.3, height - 0.06).at(0, 0.2, 0)]
    parts.append(torus(radius * 0.88, 0.022).at(0, 0, height + 0.01))
    back = radius + deep / 2 + 0.02
    parts.append(box(tank, deep, tall).at(0, back, height - 0.03))
    parts.append(box(tank + 0.03, deep + 0.03, 0.03).at(0, back, height + tall - 0.03))
    lid = generator.uniform(1.5, 1.75) if perhaps(generator, 0.7) else 0.05
    cover = cylinder(radius * 0.95, 0.02).at(0, -radius, 0).turned("x", -lid)  # hinged at the back
    parts.append(cover.at(0, radius - 0.03, height + 0.035))
    x = tank * 0.35 * either_side(generator)
    front, level = back - deep / 2, height + tall * 0.75
    parts.append(rod((x, front, level), (x, front - 0.05, level), 0.02))
    return [*parts, box(0.1, 0.02, 0.02).at(x * 0.8, front - 0.05, level - 0.01)]


def _shade(radius: float, height: float) -> list[Part]:
    """A shade, open below, with its bulb; it hangs from the origin."""
    wall = 0.012
    inside = [(0, -wall), (radius * 0.5 - wall, -wall), (radius - wall, -height)]
    outside = [(radius, -height), (radius * 0.5, 0), (0, 0)]
    return [revolved([*inside, *outside]), sphere(radius * 0.3).at(0, 0, -height * 0.6)]
