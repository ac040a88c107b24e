"""Hostile clouds.

Each of `register`, `icp`, `point_to_plane`, `estimate_normals` and the networks raises a ValueError of ours, or gives
an answer that is finite and rigid; and where it claims to be sure of a pose, the pose is right. So is the layer's
gradient finite, unless the true one is a number larger than any.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from p2plane import estimate_normals, point_to_plane, register, se3
from p2plane.classical.icp import icp
from p2plane.geometry.neighbors import knn
from tests.networks.small import HEADS, NAMES, small
from torture.conftest import Note
from torture.hostile import DENORMAL, HOSTILE, OUTLIERS, TORN, Hostile

RIGHT = 0.02  # of the target's size

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=HOSTILE)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("method", ["auto", "initial"])
def test_register(name: str, method: str, note: Note) -> None:
    said = {dtype: _register(_as(HOSTILE[name](), dtype), method) for dtype in DTYPES}
    note(f"`register(method={method!r})`: {name}", _both(said))


def test_icp(name: str, note: Note) -> None:
    excuses = name in OUTLIERS, name == TORN
    note(f"`icp`: {name}", _both({dtype: _icp(_as(HOSTILE[name](), dtype), *excuses) for dtype in DTYPES}))


def test_point_to_plane(name: str, note: Note) -> None:
    note(f"`point_to_plane`: {name}", _both({dtype: _layer(_as(HOSTILE[name](), dtype)) for dtype in DTYPES}))


def test_gradient_of_point_to_plane(name: str, note: Note) -> None:
    said = {dtype: _gradient(_as(HOSTILE[name](), dtype), name in DENORMAL) for dtype in DTYPES}
    note(f"`point_to_plane`, backwards: {name}", _both(said))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("network", NAMES)
def test_networks(name: str, network: str, head: str, note: Note) -> None:
    note(f"{network} with the {head} head: {name}", _network(_as(HOSTILE[name](), torch.float32), network, head))


def test_estimate_normals(name: str, note: Note) -> None:
    note(f"`estimate_normals`: {name}", _both({dtype: _normals(_as(HOSTILE[name](), dtype)) for dtype in DTYPES}))


def _register(pair: Hostile, method: str) -> str:
    def answer() -> str:
        result = register(pair.source, pair.target, method=method)
        _assert_rigid(result.T_target_source)
        assert 0 <= result.confidence <= 1
        for number in (result.fitness, result.inlier_rmse, result.plane_rmse, result.normal_agreement, result.size):
            assert math.isfinite(number), result
        assert result.information.isfinite().all()
        assert result.covariance.isfinite().all()
        error = _error(pair, result.T_target_source)
        if not result.confident:
            return f"not confident{_open(result.undetermined)}"
        assert error < RIGHT or result.undetermined, f"confident, but off by {error:.2g} of the size"
        assert _gap(pair, result.T_target_source) < RIGHT, "confident, but the clouds do not touch"
        return f"confident, and right{_open(result.undetermined)}"

    return _refused_or(answer)


def _icp(pair: Hostile, is_outlier: bool, is_torn: bool) -> str:
    def answer() -> str:
        alignment = icp(pair.source, pair.target)
        _assert_rigid(alignment.T_target_source)
        assert not alignment.energy.isnan()
        if not alignment.converged:
            return "not converged"
        determined = int(alignment.observability.determined)
        before, after = _gap(pair, torch.eye(4)), _gap(pair, alignment.T_target_source)
        excused = is_outlier or (is_torn and determined < 6)
        assert excused or after <= before + 1e-6, f"the clouds were {before:.2g} apart and are {after:.2g}"
        return f"converged, {determined} of 6 directions determined"

    return _refused_or(answer)


def _layer(pair: Hostile) -> str:
    normals = _random_normals(pair)

    def answer() -> str:
        alignment = point_to_plane(pair.source, pair.target, normals)
        _assert_rigid(alignment.T_target_source)
        assert not alignment.energy.isnan()
        if not alignment.converged:
            return "not converged"
        determined = int(alignment.observability.determined)
        if determined < 6:
            return f"{determined} of 6 directions determined, and it says so"
        true, rounding = _plane_energy(pair, normals)
        assert alignment.energy <= 1.001 * true + rounding, f"the true pose has less energy, {true:.3g}"
        return "the pose of least energy"

    return _refused_or(answer)


def _gradient(pair: Hostile, is_denormal: bool) -> str:
    inputs = [tensor.requires_grad_() for tensor in (pair.source, pair.target, _random_normals(pair))]

    def answer() -> str:
        point_to_plane(*inputs).T_target_source.sum().backward()
        is_finite = all(tensor.grad.isfinite().all() for tensor in inputs)
        assert is_finite or is_denormal
        return "a finite gradient" if is_finite else "a gradient too large for its numbers"

    return _refused_or(answer)


def _network(pair: Hostile, network: str, head: str) -> str:
    def answer() -> str:
        with torch.no_grad():
            alignment = small(network, head)(pair.source[None, ::3], pair.target[None, ::3])
        _assert_rigid(alignment.T_target_source[0])
        return "a rigid motion, converged" if alignment.converged.all() else "a rigid motion, not converged"

    return _refused_or(answer)


def _normals(pair: Hostile) -> str:
    def answer() -> str:
        geometry = estimate_normals(pair.source)
        lengths = geometry.normals.norm(dim=-1)
        assert ((lengths - 1).abs() < 1e-4).where(geometry.reliable, lengths == 0).all()
        assert not geometry.eigenvalues.isnan().any()
        assert not geometry.covariances.isnan().any()
        return f"{int(geometry.reliable.sum())} of {len(lengths)} points have a normal"

    return _refused_or(answer)


def _random_normals(pair: Hostile) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    normals = torch.randn(pair.target.shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(normals, dim=-1).to(pair.target.dtype)


def _refused_or(answer: Callable[[], str]) -> str:
    """What was answered, or how it was refused; any exception but a ValueError is a failure."""
    try:
        return answer()
    except ValueError as error:
        assert type(error).__module__ in ("builtins", "p2plane.data.io"), type(error)  # noqa: PT017
        return f"refused: {error}"


def _as(pair: Hostile, dtype: torch.dtype) -> Hostile:
    return Hostile(pair.source.to(dtype), pair.target.to(dtype), pair.T_target_source)


def _assert_rigid(T: Tensor) -> None:
    assert T.isfinite().all(), T
    R = T[:3, :3].double()
    torch.testing.assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-5)
    assert torch.det(R) > 0


def _finite(pair: Hostile) -> tuple[Tensor, Tensor, float]:
    """Rows that are finite on both sides, as float64 in units of the target's extent."""
    rows = pair.source.isfinite().all(-1) & pair.target.isfinite().all(-1)
    source, target = pair.source[rows].double(), pair.target[rows].double()
    return source, target, float((target - target.median(0).values).norm(dim=-1).median()) or 1.0


def _error(pair: Hostile, T: Tensor) -> float:
    """Median distance of moved points from where they belong, in units of the target's size."""
    source, target, size = _finite(pair)
    return float((se3.apply(T.double(), source) - target).norm(dim=-1).median() / size)


def _gap(pair: Hostile, T: Tensor) -> float:
    """Median distance of moved points from the nearest of the target, in units of its size."""
    source, target, size = _finite(pair)
    moved = se3.apply(T.double(), source)
    return float(knn(moved / size, target / size, 1).distances.median())


def _plane_energy(pair: Hostile, normals: Tensor) -> tuple[float, float]:
    """What the layer minimises, at the true pose, and what rounding of the clouds may add."""
    source, target, size = pair.source.double(), pair.target.double(), _finite(pair)[2]
    heights = ((se3.apply(pair.T_target_source, source) - target) * normals.double()).sum(-1)
    return float(heights.square().sum()), len(source) * (1e-5 * size) ** 2


def _open(undetermined: tuple[str, ...]) -> str:
    return f" ({', '.join(undetermined)})" if undetermined else ""


def _both(said: dict[torch.dtype, str]) -> str:
    single, double = said.values()
    return single if single == double else f"float32: {single}; float64: {double}"
