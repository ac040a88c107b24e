"""The weights that come with the package."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3
from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PROTOCOLS, PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import rotation_error
from p2plane.networks.weights import load_model, read_header, shipped_models


@pytest.fixture(scope="module")
def pairs() -> PairBatch:
    """Noisy, partial and composed, with estimated normals and no point in common."""
    shapes = SyntheticShapes("test", shapes_per_category=1)
    data = PairDataset(shapes, replace(PROTOCOLS["cpu-noisy"], max_angle_deg=60.0))
    return collate([data[index] for index in range(8)])


def test_files_are_small_and_say_where_they_come_from():
    assert "tessera" in shipped_models()
    for name, path in shipped_models().items():
        assert path.stat().st_size < 8_000_000
        notes = read_header(name)["notes"]
        assert {"data", "command", "steps"} <= set(notes), name


@pytest.mark.parametrize("name", ["tessera", "tessera-modelnet40"])
def test_tessera_registers_shapes_that_it_has_never_seen(name, pairs):
    model = load_model(name)
    with torch.no_grad():
        alignment = model(pairs.source, pairs.target, pairs.source_normals, pairs.target_normals)
    angles = rotation_error(alignment.T_target_source, pairs.T_target_source).rad2deg()
    assert angles.median() < 2
    assert (angles < 5).sum() >= 7


def test_tessera_does_not_care_how_the_source_is_turned(pairs):
    model = load_model("tessera")
    T = se3.random(8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(pairs.source, pairs.target, pairs.source_normals, pairs.target_normals)
        source, normals = se3.apply(T, pairs.source), se3.rotate(T, pairs.source_normals)
        after = model(source, pairs.target, normals, pairs.target_normals)
    angles = rotation_error(after.T_target_source @ T, before.T_target_source).rad2deg()
    assert_close(angles, torch.zeros(8), rtol=0, atol=0.5)
