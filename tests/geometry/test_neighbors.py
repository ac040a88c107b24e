"""Neighbours: both engines against all distances written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane.geometry import engines as search
from p2plane.geometry.neighbors import NeighborIndex, Neighbors, gather, knn, radius_search

INF = float("inf")
ENGINES = ("blocks", "tree")
engines = pytest.mark.parametrize("engine", ENGINES)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def coins(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def reference(
    query: Tensor, points: Tensor, k: int, mask: Tensor | None = None, query_mask: Tensor | None = None
) -> Neighbors:
    """The k smallest of all distances, by sorting them."""
    distances = (query[..., :, None, :] - points[..., None, :, :]).norm(dim=-1)
    if mask is not None:
        distances = distances.where(mask[..., None, :], INF)
    if query_mask is not None:
        distances = distances.where(query_mask[..., None], INF)
    distances, indices = (each[..., :k] for each in distances.sort(dim=-1, stable=True))
    nearest = indices[..., :1].where(distances[..., :1].isfinite(), 0)
    return Neighbors(distances, indices.where(distances.isfinite(), nearest))


@engines
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize(("queries", "points", "k"), [(1, 1, 1), (7, 30, 1), (40, 30, 30), (50, 700, 20)])
@pytest.mark.parametrize("dimension", [1, 3, 5, 64])
def test_nearest_are_the_smallest_of_all_distances(engine, batch, queries, points, k, dimension):
    query, cloud = normal(*batch, queries, dimension), normal(*batch, points, dimension, seed=1)
    assert_close(knn(query, cloud, k, engine=engine), reference(query, cloud, k))


@engines
@pytest.mark.parametrize("dimension", [3, 16])
def test_absent_points_are_nobodys_neighbors_and_absent_queries_have_none(engine, dimension):
    query, points = normal(4, 30, dimension), normal(4, 12, dimension, seed=1)
    mask, query_mask = coins(4, 12), coins(4, 30, seed=1)
    mask[0] = False  # a cloud without any point
    expected = reference(query, points, 9, mask, query_mask)
    assert not expected.found.all()
    points[~mask], query[~query_mask] = torch.nan, torch.nan
    result = knn(query, points, 9, mask=mask, query_mask=query_mask, engine=engine)
    assert_close(result, expected)
    assert_close(result.counts, (mask.sum(-1, keepdim=True) * query_mask).clamp(max=9))


@engines
def test_within_a_radius(engine):
    query, points, mask = normal(3, 40, 3), normal(3, 60, 3, seed=1), coins(3, 60)
    distances, indices = reference(query, points, 10, mask)
    found = distances <= 0.8
    assert 0 < found.sum() < found.numel()
    result = radius_search(query, points, 0.8, 10, mask=mask, engine=engine)
    assert_close(result.found, found)
    assert_close(result.distances, distances.where(found, INF))
    assert_close(result.indices, indices.where(found, indices[..., :1].where(found[..., :1], 0)))


@engines
def test_a_radius_reaches_its_own_length(engine):
    line = torch.arange(10.0)[:, None] * torch.tensor([0.1, 0.0, 0.0])
    result = radius_search(line[:1], line, 0.1, 5, engine=engine)
    assert_close(result.indices, torch.tensor([[0, 1, 0, 0, 0]]))
    assert result.counts == 2


@engines
def test_more_room_than_points(engine):
    points = normal(4, 3)
    result = radius_search(points, points, 100.0, 9, engine=engine)
    assert_close(result.counts, torch.full((4,), 4))
    assert_close(result.indices[:, 4:], torch.arange(4)[:, None].expand(4, 5))
    assert_close(result.distances[:, :4], reference(points, points, 4).distances)


@engines
@pytest.mark.parametrize(("dtype", "offset"), [(torch.float64, 1e6), (torch.float64, 1e9), (torch.float32, 1e3)])
@pytest.mark.parametrize("dimension", [3, 8])
def test_far_from_the_origin_nothing_is_lost(engine, dtype, offset, dimension):
    query = normal(60, dimension).to(dtype) + offset
    points, mask = normal(90, dimension, seed=1).to(dtype) + offset, coins(90)
    expected = reference(query.double(), points.double(), 8, mask)
    result = knn(query, points, 8, mask=mask, engine=engine)
    assert_close(result.indices, expected.indices)
    assert_close(result.distances, expected.distances.to(dtype))


@engines
def test_a_point_finds_itself_and_its_copies_first(engine):
    points = normal(20, 3).repeat(3, 1)
    result = knn(points, points, 4, engine=engine)
    assert_close(result.distances[:, :3], torch.zeros(60, 3, dtype=torch.float64))
    assert_close(result.indices[:, :3].sort(-1).values % 20, (torch.arange(60) % 20)[:, None].expand(60, 3))
    assert (result.distances[:, 3] > 0).all()


def test_blocks_give_ties_to_the_lower_index():
    for dimension in (3, 8):
        points = torch.ones(50, dimension)
        assert_close(knn(points, points, 6, engine="blocks").indices, torch.arange(6).expand(50, 6))


def test_a_cloud_is_cut_into_blocks(monkeypatch):
    query, points = normal(5, 17, 3), normal(5, 23, 3, seed=1)
    expected = reference(query, points, 4)
    pieces = list(search._blocks(5, 17, 2**18, torch.device("cpu")))
    assert len(pieces) == 5 * 5
    for size in (1, 7, 17):
        cut = [(slice(b, b + 2), slice(n, n + size)) for b in range(0, 5, 2) for n in range(0, 17, size)]
        monkeypatch.setattr(search, "_blocks", lambda *_, cut=cut: cut)
        assert_close(knn(query, points, 4, engine="blocks"), expected)


def test_large_clouds_in_space_take_the_tree():
    points = normal(3_000, 3)
    assert NeighborIndex(points)._uses_trees
    assert not NeighborIndex(points[:500])._uses_trees
    assert not NeighborIndex(normal(3_000, 64))._uses_trees
    trees, blocks = knn(points, points, 5), knn(points, points, 5, engine="blocks")
    assert_close(trees, blocks)


@engines
def test_one_cloud_serves_a_batch_of_queries(engine):
    query, points = normal(2, 3, 10, 3), normal(40, 3, seed=1)
    index = NeighborIndex(points, engine=engine)
    for _ in range(2):  # the second time with the same tree
        result = index.knn(query, 5)
        assert_close(result, reference(query, points, 5))
    assert_close(index.within(query, 1.0, 5), radius_search(query, points, 1.0, 5))
    assert gather(points, result.indices).shape == (2, 3, 10, 5, 3)


@engines
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtype_comes_from_the_points(engine, dtype):
    query, points = 100 * normal(20, 3, dtype=dtype), 100 * normal(30, 3, seed=1, dtype=dtype)
    result = knn(query, points, 3, engine=engine)
    expected = reference(query.double(), points.double(), 3)
    assert result.distances.dtype == dtype
    assert_close(result.distances.double(), expected.distances, rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_gather_takes_rows_of_each_cloud():
    values, indices = normal(2, 3, 10, 4), torch.randint(10, (2, 3, 7, 5), generator=torch.Generator().manual_seed(0))
    result = gather(values, indices)
    assert result.shape == (2, 3, 7, 5, 4)
    assert_close(result[1, 2, 3, 4], values[1, 2, indices[1, 2, 3, 4]])
    assert_close(result[0, 1, 6, 0], values[0, 1, indices[0, 1, 6, 0]])


@engines
def test_distances_have_gradients(engine):
    query, points = normal(2, 6, 3).requires_grad_(), normal(2, 9, 3, seed=1).requires_grad_()
    mask = coins(2, 9)
    assert torch.autograd.gradcheck(lambda q, p: knn(q, p, 3, engine=engine).distances, (query, points))
    distances = radius_search(query, points, 1.0, 9, mask=mask, engine=engine).distances
    distances.where(distances.isfinite(), 0).sum().backward()
    assert query.grad.isfinite().all()
    assert_close(points.grad[~mask], torch.zeros_like(points.grad[~mask]))


@engines
def test_gradients_are_zero_where_points_coincide(engine):
    points = torch.ones(5, 3, dtype=torch.float64, requires_grad=True)
    knn(points, points, 3, engine=engine).distances.sum().backward()
    assert_close(points.grad, torch.zeros(5, 3, dtype=torch.float64))


@engines
def test_no_queries_and_no_clouds(engine):
    points = normal(2, 9, 3)
    assert knn(points[:, :0], points, 4, engine=engine).indices.shape == (2, 0, 4)
    assert knn(points[:0], points[:0], 4, engine=engine).distances.shape == (0, 9, 4)


@pytest.mark.filterwarnings("default")
def test_compiles_without_a_break():
    query, points = normal(2, 10, 3), normal(2, 12, 3, seed=1)
    compiled = torch.compile(lambda q, p: knn(q, p, 4), backend="eager", fullgraph=True)
    assert_close(compiled(query, points), knn(query, points, 4))


def test_says_what_is_wrong():
    points = normal(9, 3)
    broken = points.clone()
    broken[4, 1] = torch.nan
    for arguments, settings, message in [
        ((points, points, 10), {}, r"k must be an integer from 1 to the number of points, 9, got 10"),
        ((points, points, 0), {}, r"k must be an integer from 1 .* got 0"),
        ((points, points, 2.0), {}, r"k must be an integer .* got 2\.0"),
        ((points, points[:0], 1), {}, r"points must hold at least one point, got shape \(0, 3\)"),
        ((points, points[0], 1), {}, r"points must have shape \(\.\.\., N, D\), got \(3,\)"),
        ((points, points.long(), 1), {}, r"points must be a floating point tensor, got torch\.int64"),
        ((points.numpy(), points, 1), {}, r"query must be a floating point tensor, got ndarray"),
        ((points.float(), points, 1), {}, r"query must have dtype and device of points, torch\.float64 on cpu, got"),
        ((points[:, :2], points, 1), {}, r"query must have the dimension of points, 3, got 2"),
        ((points, points.expand(2, 9, 3), 1), {}, r"query must have the batch shape of points, \(2,\), got \(\)"),
        ((points, broken, 1), {}, r"points must be finite .* got \[.*nan.*\] at \(4,\); .* with mask"),
        ((broken, points, 1), {}, r"query must be finite .* at \(4,\); .* with query_mask"),
        ((points, 1e200 * points, 1), {}, r"points must have coordinates below 1e\+150, got .*e\+200"),
        ((points, points, 1), {"mask": coins(8)}, r"mask must be boolean with shape \(9,\), got .* \(8,\)"),
        ((points, points, 1), {"query_mask": points[:, 0]}, r"query_mask must be boolean .* got torch\.float64"),
        ((points, points, 1), {"engine": "magic"}, r"engine must be one of \('auto', 'blocks', 'tree'\), got 'magic'"),
    ]:
        with pytest.raises(ValueError, match=message):
            knn(*arguments, **settings)
    for radius in (0.0, -1.0, INF, float("nan")):
        with pytest.raises(ValueError, match="radius must be positive and finite, got"):
            radius_search(points, points, radius, 5)
    with pytest.raises(ValueError, match="max_neighbors must be a positive integer, got 0"):
        radius_search(points, points, 1.0, 0)
