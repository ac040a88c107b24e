"""Vehicles, instruments and people. Unless it says otherwise the front is towards -y; z is up."""

from __future__ import annotations

import math

from numpy.random import Generator

from p2plane.data.shapes.draws import count, draw, perhaps
from p2plane.data.shapes.parts import Part, moved, turned
from p2plane.data.shapes.solids import box, cone, cylinder, prism, revolved, rod, silhouette, sphere, torus


def airplane(generator: Generator) -> list[Part]:
    """A fuselage with swept wings, a tail, and engines or a propeller; the nose is towards +x."""
    radius, span, chord, sweep, place = draw(generator, (0.09, 0.16), (0.8, 1.2), (0.25, 0.45), (0.1, 0.6), (-0.1, 0.2))
    outline = [(0, 0), (0.35, 0.04), (0.75, 0.3), (1, 0.6), (1, 1.5), (0.8, 1.8), (0.45, 1.93), (0, 2)]
    parts = [revolved([(radius * r, z) for r, z in outline]).turned("y", math.pi / 2).at(-1, 0, 0)]
    height = -radius * 0.5 if perhaps(generator) else radius * 0.5
    parts += moved(_wings(chord, chord * 0.35, span, sweep, 0.035), place, 0, height)
    tail, fin = draw(generator, (0.28, 0.45), (0.25, 0.4))
    parts += moved(_wings(0.2, 0.1, tail, 0.15, 0.025), -0.85, 0, 0.04 if perhaps(generator, 0.7) else fin + 0.02)
    upright = [(-0.98, 0), (-0.7, 0), (-0.9, fin + 0.03), (-1.03, fin + 0.03)]
    parts.append(silhouette(upright, 0.03).at(0, 0, radius * 0.3))
    engines, size = count(generator, 0, 2), radius * 0.45
    if engines == 0:
        blades = box(0.02, 0.5, 0.05).turned("x", generator.uniform(0, math.pi))
        return [*parts, blades.at(1, 0, 0), cone(0.04, 0.01, 0.06).turned("y", math.pi / 2).at(1, 0, 0)]
    pod = revolved([(0, 0), (size * 0.6, 0), (size, 0.1), (size, 0.25), (size * 0.8, 0.3), (0, 0.27)])
    for y in (span * share for share in (0.3, 0.58)[:engines]):
        x, z = place - sweep * y / span, height - size * 0.9
        parts += [pod.turned("y", math.pi / 2).at(x, side * y, z) for side in (-1, 1)]
    return parts


def car(generator: Generator) -> list[Part]:
    """A body with a bonnet, a narrower cabin, wheels, mirrors, bumpers and perhaps a spoiler; it drives to -x."""
    length, width, belt, roof, wheel = draw(generator, (3.6, 4.8), (1.6, 1.9), (0.75, 0.95), (0.4, 0.75), (0.28, 0.36))
    hood, glass, rear, boot = (
        length * share for share in draw(generator, (0.18, 0.3), (0.05, 0.13), (0.02, 0.15), (0, 0.25))
    )
    low, front, back = 0.25, -length / 2, length / 2
    start, end, top = front + hood, back - boot - 0.05, belt + roof
    tail = [(front, low), (back, low), (back, belt * 0.95), (back - 0.1, belt)]
    parts = [silhouette([*tail, (start, belt), (front + 0.1, belt * 0.82)], width)]
    cabin = [(start - 0.1, belt - 0.05), (end, belt - 0.05), (end - rear, top), (start + glass, top)]
    parts.append(silhouette(cabin, width * generator.uniform(0.8, 0.92)))
    for side in (-1, 1):
        wheels = [_wheel(wheel).at(x, -width / 2 - 0.05, wheel) for x in (front + length * 0.18, back - length * 0.2)]
        parts += [part.turned("z", math.pi).at(front + back, 0, 0) if side > 0 else part for part in wheels]
        parts.append(box(0.1, 0.2, 0.14).at(start + 0.25, side * (width / 2 + 0.05), belt))
    parts += [box(0.12, width * 0.9, 0.18).at(x, 0, low + 0.08) for x in (front - 0.03, back + 0.03)]
    if perhaps(generator, 0.35):
        parts.append(box(0.25, width * 0.8, 0.04).at(back - 0.15, 0, belt + 0.2))
        parts += [box(0.05, 0.05, 0.22).at(back - 0.15, y, belt - 0.02) for y in (-width * 0.3, width * 0.3)]
    return parts


def guitar(generator: Generator) -> list[Part]:
    """Two bouts and a waist, a neck, a head with pegs, a bridge; a ring, or a horn and pickups."""
    lower, upper, thick, neck = draw(generator, (0.18, 0.22), (0.12, 0.16), (0.04, 0.11), (0.35, 0.45))
    waist = box(lower * 1.2, 0.26, thick * 0.96).at(0, 0.13, 0.02 * thick)
    parts = [cylinder(lower, thick), cylinder(upper, thick * 0.98).at(0, 0.26, 0.01 * thick), waist]
    if perhaps(generator):
        parts.append(torus(0.055, 0.012).at(0, 0.15, thick))
    else:
        horn = rod((0.05, 0.3, thick / 2), (0.17, 0.45, thick / 2), thick * 0.45, thick * 0.25)
        parts += [horn, *(box(0.1, 0.025, 0.02).at(0, y, thick) for y in (0.1, 0.2))]
        parts += [cylinder(0.015, 0.03).at(0.12, -0.05 - 0.05 * i, thick) for i in range(count(generator, 2, 3))]
    parts.append(box(0.14, 0.03, 0.025).at(0, -0.05, thick))
    parts.append(box(0.055, neck + 0.1, 0.035).at(0, 0.31 + neck / 2, thick - 0.02))
    end, level = 0.36 + neck, thick - 0.01
    head = prism([(-0.03, 0), (0.03, 0), (0.05, 0.16), (-0.045, 0.2)], 0.025)
    parts.append(head.turned("x", -generator.uniform(0.05, 0.25)).at(0, end - 0.01, level))
    for side in (-1, 1) if perhaps(generator) else (-1,):
        parts += [rod((0, end + y, level), (side * 0.085, end + y, level), 0.009) for y in (0.04, 0.08, 0.12)]
    return turned(parts, "x", math.pi / 2)


def person(generator: Generator) -> list[Part]:
    """A figure that stands, walks or sits, every joint at an angle of its own."""
    girth, twist = draw(generator, (0.85, 1.25), (-0.4, 0.4))
    hips = generator.uniform(0.0, 0.2) if perhaps(generator, 0.7) else generator.uniform(1.1, 1.5)
    chest = [(0, 0), (0.14, 0.02), (0.13, 0.2), (0.19, 0.45), (0.12, 0.55), (0.06, 0.58), (0.055, 0.66), (0, 0.66)]
    body = [revolved([(r * girth, z) for r, z in chest]), sphere(0.115).at(0, -0.01, 0.76)]
    body += [box(0.05, 0.06, 0.05).at(0, -0.12, 0.73), box(0.32 * girth, 0.17, 0.2).at(0, 0, -0.08)]
    for side in (-1, 1):
        swing, spread, elbow = draw(generator, (-0.6, 1.6), (0.1, 0.9), (0.0, 1.8))
        arm = turned(turned(_limb(0.3, 0.28, 0.05 * girth, elbow), "x", -swing), "y", -side * spread)
        body += moved(arm, side * 0.19 * girth, 0, 0.44)
    parts = turned(body, "z", twist)
    for side in (-1, 1):
        stride, spread, knee = draw(generator, (-0.5, 0.5), (0.0, 0.25), (0.0, 0.5))
        bend = -max(knee, hips)
        shoe = box(0.09, 0.24, 0.08).at(0, -0.06, -0.52).turned("x", -bend).at(0, 0, -0.45)
        leg = [*_limb(0.45, 0.45, 0.075 * girth, bend), shoe]
        parts += moved(turned(turned(leg, "x", -hips - stride), "y", -side * spread), side * 0.1 * girth, 0, 0)
    return parts


def piano(generator: Generator) -> list[Part]:
    """An upright, or a grand with its lid up; keys, legs and pedals."""
    return _upright(generator) if perhaps(generator) else _grand(generator)


def _upright(generator: Generator) -> list[Part]:
    width, depth, height, shift = draw(generator, (1.35, 1.55), (0.3, 0.45), (1.0, 1.3), (-0.1, 0.1))
    front = -depth / 2
    parts = [box(width, depth, height), box(width + 0.04, depth + 0.04, 0.03).at(0, 0, height)]
    parts += [
        box(width, 0.3, 0.12).at(0, front - 0.15, 0.6),
        *moved(_black_keys(generator, width), 0, front - 0.1, 0.72),
    ]
    parts += [cone(0.04, 0.06, 0.6).at(x, front - 0.25, 0) for x in (-width * 0.46, width * 0.46)]
    parts.append(box(width * 0.5, 0.02, 0.22).turned("x", -0.2).at(width * shift, front - 0.02, 0.85))
    return parts + [box(0.05, 0.2, 0.02).at(0.1 * i, front - 0.08, 0.06) for i in (-1, 0, 1)]


def _grand(generator: Generator) -> list[Part]:
    width, length, floor, lid = draw(generator, (1.4, 1.5), (1.5, 2.2), (0.6, 0.7), (0.4, 0.8))
    half, bay = width / 2, length * 0.45
    bow = [(half, bay), (half * 0.55, bay * 1.35), (half * 0.3, length * 0.88), (-half * 0.3, length)]
    back = [*bow, (-half * 0.8, length * 0.95), (-half, length * 0.8)]
    parts = [prism([(-half, 0), (half, 0), *back], 0.3).at(0, 0, floor), box(width, 0.25, 0.15).at(0, -0.125, floor)]
    cover = prism([(x + half, y) for x, y in [*back, (-half, bay * 0.6), (half, bay * 0.6)]], 0.03)
    parts += [
        cover.turned("y", -lid).at(-half, 0, floor + 0.3),
        *moved(_black_keys(generator, width), 0, -0.1, floor + 0.15),
    ]
    feet = [(-half * 0.85, 0.12), (half * 0.85, 0.12), (-half * 0.3, length * 0.85)]
    parts += [cone(0.04, 0.07, floor).at(x, y, 0) for x, y in feet]
    prop = half * 0.4
    parts.append(rod((prop, bay, floor + 0.25), (prop, bay, floor + 0.3 + (prop + half) * math.tan(lid)), 0.015))
    parts.append(box(0.15, 0.05, floor - 0.05).at(0, 0.1, 0.05))
    return parts + [box(0.04, 0.2, 0.02).at(0.06 * i, 0.0, 0.08) for i in (-1, 0, 1)]


def _black_keys(generator: Generator, width: float) -> list[Part]:
    number = count(generator, 8, 14)
    key = box(width / number * 0.4, 0.12, 0.03)
    return [key.at(width * 0.92 * ((i + 0.5) / number - 0.5), 0, 0) for i in range(number) if i % 7 not in (2, 6)]


def _wheel(radius: float) -> Part:
    """A wheel with a hub that stands out towards -y, about the origin."""
    outline = [(0, -0.22), (radius, -0.22), (radius, 0), (radius * 0.6, 0), (radius * 0.45, 0.06), (0, 0.06)]
    return revolved(outline).turned("x", math.pi / 2)


def _wings(root: float, tip: float, span: float, sweep: float, thick: float) -> list[Part]:
    """A pair of wings across y, swept back towards -x."""
    outline = [(-root / 2, 0), (root / 2, 0), (root / 2 - sweep, span), (root / 2 - sweep - tip, span)]
    return [prism(outline, thick), prism([(x, -y) for x, y in reversed(outline)], thick)]


def _limb(upper: float, lower: float, radius: float, bend: float) -> list[Part]:
    """Two tapered bones that hang from the origin with a joint between them, bent forwards by an angle."""
    joint = (0, 0, -upper)
    end = (0, -lower * math.sin(bend), -upper - lower * math.cos(bend))
    bones = [rod((0, 0, 0), joint, radius, radius * 0.8), rod(joint, end, radius * 0.8, radius * 0.6)]
    return [*bones, sphere(radius), sphere(radius * 0.82).at(*joint), sphere(radius * 0.75).at(*end)]
