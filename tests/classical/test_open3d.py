"""FGR and RANSAC find poses from anywhere, in any unit; without Open3D the remedy is named."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from p2plane import se3
from p2plane.classical.open3d import FGR, RANSAC, FGRConfig, RANSACConfig, import_open3d, spacing_of
from p2plane.data.pairs import PairDataset, PairSettings
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import rotation_error, translation_error

try:
    import_open3d()
    without = ""
except ImportError as error:
    without = str(error)
needs_open3d = pytest.mark.skipif(bool(without), reason=without)


def partial_pair(seed: int = 0) -> Any:
    """A composed, partial, unduplicated pair of built-in shapes."""
    shapes = SyntheticShapes("test", shapes_per_category=1)
    settings = PairSettings(shapes=3, shared=0.0, max_angle_deg=90)
    return PairDataset(shapes, settings, seed=seed)[8]


def align(method: Any, pair: Any, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return method(pair.source, pair.target, pair.source_normals, pair.target_normals, generator=generator)


@needs_open3d
@pytest.mark.parametrize(
    ("method", "degrees"),
    [
        (RANSAC(), 2.0),
        (RANSAC(RANSACConfig(refinement="plain")), 3.0),
        (RANSAC(RANSACConfig(refinement="none")), 15.0),
        (FGR(), 5.0),
        (FGR(FGRConfig(refinement="robust")), 2.0),
    ],
    ids=["ransac", "ransac, plain", "ransac, not refined", "fgr", "fgr, refined"],
)
def test_partial_clouds_are_brought_together(method: Any, degrees: float) -> None:
    pair = partial_pair()
    T = align(method, pair).T_target_source
    assert rotation_error(pair.T_target_source, torch.eye(4)) > math.radians(40)
    assert rotation_error(T, pair.T_target_source) < math.radians(degrees)
    assert translation_error(T, pair.T_target_source) < 0.03 * degrees


@needs_open3d
@pytest.mark.parametrize("method", [RANSAC(), FGR()], ids=["ransac", "fgr"])
def test_neither_unit_nor_place_matters(method: Any) -> None:
    pair = partial_pair(seed=1)
    far = torch.tensor([5e5, -2e6, 300.0], dtype=torch.float64)
    clouds = [1000 * points.double() + far for points in (pair.source, pair.target)]
    normals = [each.double() for each in (pair.source_normals, pair.target_normals)]
    T = method(*clouds, *normals, generator=torch.Generator().manual_seed(0)).T_target_source
    truth = se3.apply(pair.T_target_source.double(), pair.source.double())
    moved = (se3.apply(T, clouds[0]) - far) / 1000
    assert (moved - truth).norm(dim=1).max() < 0.15


@needs_open3d
@pytest.mark.parametrize("method", [RANSAC(), FGR()], ids=["ransac", "fgr"])
def test_the_answer_is_that_of_the_seed(method: Any) -> None:
    pair = partial_pair()
    first, *others = (align(method, pair, seed=3).T_target_source for _ in range(6))
    assert all(torch.equal(first, other) for other in others)


@needs_open3d
def test_ransac_has_one_thread_which_alone_heeds_the_seed_and_gives_the_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open3d = import_open3d()
    if not hasattr(open3d.utility, "set_max_threads"):
        pytest.skip("Open3D before 0.20 has no such limit")
    seen = []
    search = open3d.pipelines.registration.registration_ransac_based_on_feature_matching

    def watched(*arguments: Any) -> Any:
        seen.append(open3d.utility.get_max_threads())
        return search(*arguments)

    monkeypatch.setattr(open3d.pipelines.registration, "registration_ransac_based_on_feature_matching", watched)
    before = open3d.utility.get_max_threads()
    align(RANSAC(), partial_pair())
    assert seen == [1]
    assert open3d.utility.get_max_threads() == before


@needs_open3d
def test_padding_of_a_batch_is_not_seen() -> None:
    pair = partial_pair()
    alone = align(RANSAC(), pair)
    padding = (0, 0, 0, 50)
    clouds = [
        torch.nn.functional.pad(each, padding, value=torch.nan)[None]
        for each in (pair.source, pair.target, pair.source_normals, pair.target_normals)
    ]
    masks = [points.isfinite().all(-1) for points in clouds[:2]]
    generator = torch.Generator().manual_seed(0)
    padded = RANSAC()(*clouds, source_mask=masks[0], target_mask=masks[1], generator=generator)
    torch.testing.assert_close(padded.T_target_source[0], alone.T_target_source)


@needs_open3d
def test_missing_normals_are_estimated() -> None:
    pair = partial_pair()
    result = RANSAC()(pair.source[None], pair.target[None], generator=torch.Generator().manual_seed(0))
    assert result.normals_estimated
    assert rotation_error(result.T_target_source[0], pair.T_target_source) < math.radians(3)


@needs_open3d
@pytest.mark.parametrize("method", [RANSAC(), FGR()], ids=["ransac", "fgr"])
@pytest.mark.parametrize(
    "points",
    [
        torch.zeros(2, 3),
        torch.ones(6, 3),
        torch.linspace(0, 1, 20)[:, None] * torch.ones(3),
        torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 0.0]),
    ],
    ids=["two points", "one place", "line", "plane"],
)
def test_degenerate_clouds_give_finite_poses(method: Any, points: Tensor) -> None:
    result = method(points, points + 1, generator=torch.Generator().manual_seed(0))
    assert result.T_target_source.isfinite().all()
    torch.testing.assert_close(result.R @ result.R.mT, torch.eye(3), atol=1e-4, rtol=0)


def test_the_spacing_is_the_side_of_the_square_of_a_point() -> None:
    steps = torch.arange(20, dtype=torch.float64)
    grid = torch.cartesian_prod(0.5 * steps, 0.5 * steps, torch.zeros(1, dtype=torch.float64))
    assert abs(spacing_of(grid) - 0.5) < 0.1
    assert abs(spacing_of(3 * grid) - 1.5) < 0.3


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (RANSACConfig, {"refinement": "much"}, "refinement must be one of"),
        (RANSACConfig, {"max_distance": 0.0}, "max_distance must be positive"),
        (FGRConfig, {"feature_radius": -1.0}, "feature_radius must be positive"),
        (FGRConfig, {"refinement_radii": (1.0,)}, "refinement_radii must be two lengths"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**settings)


def test_without_open3d_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    pair = partial_pair()
    with pytest.raises(ImportError, match=r"pip install 'p2plane\[open3d\]'"):
        align(RANSAC(), pair)


def test_the_wheel_s_libusb_is_loaded_before_open3d(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def watched(name: str) -> Any:
        order.append(name)
        raise ImportError(f"no {name}")

    monkeypatch.setattr("p2plane.classical.open3d.import_module", watched)
    with pytest.raises(ImportError, match="no open3d"):
        importlib.import_module("p2plane.classical.open3d").import_open3d()
    assert order == ["libusb_package", "open3d"]
