"""The categories, by the names that ModelNet40 gives them."""

from __future__ import annotations

from collections.abc import Callable

from numpy.random import Generator

from p2plane.data.shapes import furniture, house, machines, things, vessels
from p2plane.data.shapes.parts import Part

CATEGORIES: dict[str, Callable[[Generator], list[Part]]] = {
    "airplane": things.airplane,
    "bathtub": house.bathtub,
    "bed": furniture.bed,
    "bench": furniture.bench,
    "bookshelf": furniture.bookshelf,
    "bottle": vessels.bottle,
    "bowl": vessels.bowl,
    "car": things.car,
    "chair": furniture.chair,
    "cone": vessels.cone_on_base,
    "cup": vessels.cup,
    "curtain": house.curtain,
    "desk": furniture.desk,
    "door": house.door,
    "dresser": furniture.dresser,
    "flower_pot": vessels.flower_pot,
    "glass_box": vessels.glass_box,
    "guitar": things.guitar,
    "keyboard": machines.keyboard,
    "lamp": house.lamp,
    "laptop": machines.laptop,
    "mantel": house.mantel,
    "monitor": machines.monitor,
    "night_stand": furniture.night_stand,
    "person": things.person,
    "piano": things.piano,
    "plant": vessels.plant,
    "radio": machines.radio,
    "range_hood": house.range_hood,
    "sink": house.sink,
    "sofa": furniture.sofa,
    "stairs": house.stairs,
    "stool": furniture.stool,
    "table": furniture.table,
    "tent": house.tent,
    "toilet": house.toilet,
    "tv_stand": furniture.tv_stand,
    "vase": vessels.vase,
    "wardrobe": furniture.wardrobe,
    "xbox": machines.xbox,
}
"""From a name to the function that makes one object; no two calls with one generator give the same object."""
