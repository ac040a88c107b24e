"""The stream of training pairs: a pair depends on the seed and its position, and on nothing else."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from p2plane.data.pair import Pair
from p2plane.data.pairs import PairDataset, PairSettings
from p2plane.data.synthetic import SyntheticShapes
from p2plane.training.data import BLOCK, DataSettings, PairStream, Part, Positions, loader, open_data

SMALL = {"name": "synthetic", "points": 24, "keep": 16, "shapes": 1, "shapes_per_category": 2}


def stream(*lengths: int, weights: tuple[float, ...] = (1.0,), seed: int = 0) -> PairStream:
    settings = PairSettings(points=24, keep=16)
    shapes = SyntheticShapes(shapes_per_category=1, points=64)
    parts = [Part(shapes, np.arange(length), remember=True) for length in lengths]
    return PairStream([PairDataset(part, settings, seed=seed, fresh=True) for part in parts], weights, seed)


def same(first: Pair, second: Pair) -> bool:
    return torch.equal(first.source, second.source) and torch.equal(first.T_target_source, second.T_target_source)


def test_every_shape_comes_once_in_an_epoch_and_in_another_order_in_the_next() -> None:
    pairs = stream(7)
    epochs = [[pairs.locate(7 * epoch + place) for place in range(7)] for epoch in range(3)]
    for number, epoch in enumerate(epochs):
        assert sorted(index for _, _, index in epoch) == list(range(7))
        assert {which for _, which, _ in epoch} == {number}
    assert len({tuple(index for _, _, index in epoch) for epoch in epochs}) > 1


def test_a_pair_depends_on_its_position_and_not_on_what_was_asked_for_before() -> None:
    first, second = stream(5, 3, weights=(2.0, 1.0)), stream(5, 3, weights=(2.0, 1.0))
    forward = [first[position] for position in range(12)]
    backward = [second[position] for position in reversed(range(12))][::-1]
    assert all(same(*each) for each in zip(forward, backward, strict=True))
    assert not same(forward[0], stream(5, 3, weights=(2.0, 1.0), seed=1)[0])
    assert not same(first[0], first[5 * 3 * 4])


def test_a_mix_has_its_shares_and_each_part_goes_through_its_own_epochs() -> None:
    pairs = stream(5, 3, weights=(3.0, 1.0))
    places = [pairs.locate(position) for position in range(2 * BLOCK)]
    for block in (places[:BLOCK], places[BLOCK:]):
        assert sum(part == 0 for part, _, _ in block) == 750
    for part, length in ((0, 5), (1, 3)):
        own = [(epoch, index) for which, epoch, index in places if which == part]
        assert len(set(own)) == len(own)  # no pair twice
        assert [epoch for epoch, _ in own] == [place // length for place in range(len(own))]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine with one core
def test_workers_change_nothing() -> None:
    pairs = stream(6)
    plain, helped = (
        list(islice(loader(pairs, Positions(2, start=3), workers), 3))  # with workers, in processes of their own
        for workers in (0, 2)
    )
    assert all(torch.equal(a.source, b.source) for a, b in zip(plain, helped, strict=True))


def test_processes_share_a_batch() -> None:
    whole = list(islice(Positions(4, start=5), 2))
    halves = [list(islice(Positions(4, start=5, rank=rank, world=2), 2)) for rank in (0, 1)]
    assert whole == [[20, 21, 22, 23], [24, 25, 26, 27]]
    assert [a + b for a, b in zip(*halves, strict=True)] == whole


def test_validation_pairs_are_of_other_shapes_of_the_same_categories() -> None:
    data = open_data([DataSettings.from_values(SMALL)], seed=0, held_out=0.5)
    train, held_out = data.train.parts[0].shapes, data.validation.parts[0].shapes
    assert len(train) == len(held_out) == 40
    assert sorted(train.labels) == sorted(held_out.labels)
    assert not {id(train[i]) for i in range(40)} & {id(held_out[i]) for i in range(40)}
    assert not torch.equal(train[0].points, held_out[0].points)


def test_half_of_the_categories() -> None:
    first, second = (DataSettings.from_values(SMALL | {"half": half}).shapes("train") for half in ("first", "second"))
    assert (set(first.labels), set(second.labels)) == (set(range(20)), set(range(20, 40)))


def test_a_folder_of_one_cloud_is_enough(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.xyz", np.random.default_rng(0).normal(size=(100, 3)))
    values = {"name": "folder", "folder": str(tmp_path), "points": 24, "keep": 16, "shapes": 1}
    data = open_data([DataSettings.from_values(values)], seed=0, held_out=0.1)
    assert not same(data.train[0], data.validation[0])
    with pytest.raises(FileNotFoundError, match="root must be a folder"):
        open_data([DataSettings.from_values(values | {"folder": str(tmp_path / "no")})], seed=0, held_out=0.1)
