"""The layer behaves as an operation of PyTorch does: under vmap, compile, export and autocast, on meta, pickled."""

from __future__ import annotations

import copy
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import p2plane
from p2plane import Cauchy, Huber, PointToPlane, point_to_plane, point_to_point, symmetric_point_to_plane
from tests.clouds import MatchedPair, matched_pair

# PyTorch 2.13 warns of itself: of what forward mode and inductor script, what compile traces, what inductor checks.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch._prims_common.check` is deprecated:FutureWarning"),
]

SOLVERS = ["newton", "accumulate"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scattered_pair(
    *batch: int, points: int = 32, noise: float = 0.02, seed: int = 1, dtype: torch.dtype = torch.float64
) -> MatchedPair:
    """A pair whose normals point anywhere: some thirty points determine it so well that one start is enough."""
    pair = matched_pair(*batch, points=points, noise=noise, seed=seed)
    normals = torch.randn(pair.normals.shape, generator=generator(seed), dtype=torch.float64)
    pair = pair._replace(normals=normals / normals.norm(dim=-1, keepdim=True))
    return MatchedPair(*(tensor.to(dtype) for tensor in pair))


def near_the_truth(pair: MatchedPair) -> Tensor:
    return p2plane.se3.exp(torch.full((6,), 0.05, dtype=torch.float64)) @ pair.T_target_source


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def pose(*arrays: Tensor, **options) -> Tensor:
    return point_to_plane(*arrays, **options).T_target_source


def pose_and_gradients(function, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The pose, and the gradients of a fixed random linear function of it."""
    inputs = leaves(*tensors)
    T = function(*inputs)
    G = torch.randn(4, 4, generator=generator(9), dtype=torch.float64).to(T.dtype)
    return T.detach(), *torch.autograd.grad((G * T).sum(), inputs)


def test_vmap_over_pairs_is_the_batched_call():
    pair = scattered_pair(6)
    assert_close(torch.func.vmap(pose)(*pair[:4]), pose(*pair[:4]), rtol=0, atol=1e-9)
    assert_close(
        torch.func.vmap(lambda x, y: point_to_point(x, y).T_target_source)(pair.source, pair.target),
        point_to_point(pair.source, pair.target).T_target_source,
        rtol=0,
        atol=1e-9,
    )


def test_vmap_over_pairs_that_need_many_starts_is_the_batched_call():
    pair = scattered_pair(6, points=12)
    assert_close(torch.func.vmap(pose)(*pair[:4]), pose(*pair[:4]), rtol=0, atol=1e-9)


def test_vmap_over_one_argument_leaves_the_others_to_all():
    pair = scattered_pair()
    targets = pair.target + 0.01 * torch.randn(5, 32, 3, generator=generator(2), dtype=torch.float64)
    mapped = torch.func.vmap(pose, in_dims=(None, 0, None, None))(pair.source, targets, pair.normals, pair.weights)
    assert_close(mapped, pose(pair.source, targets, pair.normals, pair.weights), rtol=0, atol=1e-9)


def test_vmap_over_robust_and_turning_distances_is_the_batched_call():
    pair = scattered_pair(3)
    source_normals = p2plane.se3.rotate(p2plane.se3.inverse(pair.T_target_source), pair.normals)

    def robust(*arrays):
        return pose(*arrays, robust=Cauchy(0.1), max_iterations=8)

    def symmetric(*arrays):
        return symmetric_point_to_plane(*arrays, max_iterations=8).T_target_source

    both_sides = (pair.source, pair.target, source_normals, pair.normals)
    assert_close(torch.func.vmap(robust)(*pair[:4]), robust(*pair[:4]), rtol=0, atol=1e-8)
    assert_close(torch.func.vmap(symmetric)(*both_sides), symmetric(*both_sides), rtol=0, atol=1e-8)


def test_jacobians_by_the_target_agree_backward_forward_and_row_by_row():
    pair = scattered_pair(points=24)

    def by_target(target):
        return pose(pair.source, target, pair.normals, pair.weights)

    backward, forward = torch.func.jacrev(by_target)(pair.target), torch.func.jacfwd(by_target)(pair.target)
    assert backward.shape == (4, 4, 24, 3)
    assert_close(backward, forward, rtol=1e-9, atol=1e-10)
    (target,) = leaves(pair.target)
    T = by_target(target)
    rows = [torch.autograd.grad(entry, target, retain_graph=True)[0] for entry in T[:3].flatten()]
    assert_close(backward[:3].flatten(0, 1), torch.stack(rows), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("jacobian", [torch.func.jacrev, torch.func.jacfwd])
def test_vmap_of_a_jacobian_gives_each_pair_its_own(jacobian):
    pair = scattered_pair(3, points=24)
    mapped = torch.func.vmap(jacobian(pose, argnums=1))(*pair[:4])
    for index in range(3):
        alone = torch.func.jacrev(pose, argnums=1)(*(tensor[index] for tensor in pair[:4]))
        assert_close(mapped[index], alone, rtol=1e-8, atol=1e-9)


def test_vmap_of_a_gradient_gives_each_pair_its_own():
    pair = scattered_pair(3)
    G = torch.randn(4, 4, generator=generator(9), dtype=torch.float64)

    def loss(*arrays):
        return (G * pose(*arrays)).sum()

    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2, 3)))(*pair[:4])
    _, *batched = pose_and_gradients(pose, *pair[:4])
    for one, other in zip(mapped, batched, strict=True):
        assert_close(one, other, rtol=1e-8, atol=1e-10)


has_compiler = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
needs_compiler = pytest.mark.skipif(not has_compiler, reason="no C++ compiler found, and inductor needs one")


@pytest.mark.parametrize(
    ("backend", "solver", "iterations"),
    [
        ("aot_eager", "newton", 2),
        ("aot_eager", "accumulate", 2),
        pytest.param("inductor", "newton", 2, marks=needs_compiler),  # one only: a minute where nothing is cached yet
    ],
)
def test_compiled_in_one_graph_pose_and_gradients_are_those_of_eager_mode(backend, solver, iterations):
    pair = scattered_pair(2)

    def function(*arrays):
        return pose(*arrays, initial=near, solver=solver, max_iterations=iterations)

    near = near_the_truth(pair)
    torch._dynamo.reset()
    compiled = pose_and_gradients(torch.compile(function, fullgraph=True, backend=backend), *pair[:4])
    for one, other in zip(compiled, pose_and_gradients(function, *pair[:4]), strict=True):
        assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_exported_program_gives_the_same_pose(solver):
    class Register(nn.Module):
        def __init__(self):
            super().__init__()
            self.align = PointToPlane(solver=solver, max_iterations=6)

        def forward(self, source, target, normals, weights, initial):
            return self.align(source, target, normals, weights, initial=initial).T_target_source

    one, other = ((*pair[:4], near_the_truth(pair)) for pair in (scattered_pair(2, seed=seed) for seed in (1, 2)))
    program = torch.export.export(Register(), one).module()
    for arrays in (one, other):
        assert_close(program(*arrays), Register()(*arrays), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "accumulate"}, {"gradient": "penalty"}, {"robust": Huber(0.1)}],
    ids=["newton", "accumulate", "penalty", "robust"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_changes_nothing(options, dtype):
    pair = scattered_pair(2, dtype=dtype)

    def function(*arrays):
        return pose(*arrays, initial=pair.T_target_source, **options)

    plain = pose_and_gradients(function, *pair[:4])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = pose_and_gradients(function, *pair[:4])
    for one, other in zip(cast, plain, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gives_a_finite_pose_in_float32(dtype):
    pair = scattered_pair(2, points=64)
    arrays = [tensor.to(dtype) for tensor in pair[:4]]
    T, *gradients = pose_and_gradients(pose, *arrays)
    assert T.dtype == torch.float32
    assert_close(T.double(), pair.T_target_source, rtol=0, atol=0.1)
    for gradient in gradients:
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        assert (gradient != 0).any()


def test_dtypes_may_differ_and_each_gradient_has_that_of_its_input():
    pair = scattered_pair(2)
    dtypes = (torch.float32, torch.float64, torch.float32, torch.bfloat16)
    mixed = [tensor.to(dtype) for tensor, dtype in zip(pair[:4], dtypes, strict=True)]
    T, *gradients = pose_and_gradients(pose, *mixed)
    same, *_ = pose_and_gradients(pose, *(tensor.double() for tensor in mixed))
    assert T.dtype == torch.float64
    assert_close(T, same, rtol=0, atol=1e-9)
    assert [gradient.dtype for gradient in gradients] == list(dtypes)


@pytest.mark.parametrize("solver", SOLVERS)
def test_meta_tensors_have_a_pose_of_the_right_shape(solver):
    arrays = [torch.empty(2, 5, 16, 3, device="meta", requires_grad=True) for _ in range(3)]
    alignment = point_to_plane(*arrays, solver=solver)
    assert alignment.T_target_source.shape == (2, 5, 4, 4)
    assert alignment.T_target_source.device.type == "meta"
    assert alignment.converged.shape == (2, 5)
    assert alignment.residuals.shape == (2, 5, 16)
    for gradient in torch.autograd.grad(alignment.T_target_source.sum(), arrays):
        assert gradient.shape == (2, 5, 16, 3)


@pytest.mark.parametrize("robust", [None, Cauchy(0.1)], ids=["plain", "robust"])
def test_a_graph_that_is_kept_can_be_walked_twice_and_one_that_is_not_says_so(robust):
    inputs = leaves(*scattered_pair(2)[:4])
    total = pose(*inputs, robust=robust).sum()
    first = torch.autograd.grad(total, inputs, retain_graph=True)
    second = torch.autograd.grad(total, inputs)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(total, inputs)


@pytest.mark.parametrize(
    "twin", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))], ids=["copy", "pickle"]
)
def test_modules_survive_copy_and_pickle(twin):
    pair = scattered_pair(2)
    both_sides = (pair.source, pair.target, pair.normals, pair.normals)
    covariances = torch.eye(3, dtype=torch.float64).expand(2, 32, 3, 3)
    for module, arrays in (
        (PointToPlane(gradient="penalty", max_iterations=7), pair[:4]),
        (p2plane.PointToPoint(robust=Huber(0.1)), pair[:2]),
        (p2plane.PointToDistribution(hold=("rx", "ry")), (pair.source, pair.target, covariances)),
        (p2plane.SymmetricPointToPlane(form="iterated"), both_sides),
        (p2plane.PlaneToPlane(), (pair.source, pair.target, covariances, covariances)),
    ):
        other = twin(nn.Sequential(module))[0]
        assert repr(other) == repr(module)
        assert torch.equal(other(*arrays).T_target_source, module(*arrays).T_target_source)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("robust", [None, Cauchy(0.1)], ids=["plain", "robust"])
def test_without_gradients_the_pose_is_the_same_and_has_none(without, robust):
    inputs = leaves(*scattered_pair(2)[:4])
    with without():
        alignment = point_to_plane(*inputs, robust=robust)
        assert not alignment.T_target_source.requires_grad
        assert alignment.covariance.isfinite().all()
    T = pose(*inputs, robust=robust)
    assert torch.equal(T, alignment.T_target_source)
    T.sum().backward()  # nothing made in there is in the way of gradients afterwards
    assert inputs[0].grad.isfinite().all()


def test_non_contiguous_inputs_give_the_same():
    pair = scattered_pair(2)
    expected = pose_and_gradients(pose, *pair[:4])
    columns = [tensor.mT.contiguous().mT for tensor in pair[:3]]
    every_other = [torch.stack([tensor, torch.full_like(tensor, 7.0)], dim=1)[:, 0] for tensor in pair[:4]]
    for arrays in ((*columns, pair.weights), every_other):
        assert not arrays[0].is_contiguous()
        inputs = [tensor.detach().requires_grad_() for tensor in arrays]
        T = pose(*inputs)
        G = torch.randn(4, 4, generator=generator(9), dtype=torch.float64)
        for one, other in zip((T.detach(), *torch.autograd.grad((G * T).sum(), inputs)), expected, strict=True):
            assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_expanded_inputs_collect_the_gradients_of_all_who_share_them():
    pair = scattered_pair(points=24)
    targets = pair.target + 0.01 * torch.randn(3, 24, 3, generator=generator(2), dtype=torch.float64)
    shared = (pair.source, targets, pair.normals, torch.ones(1, dtype=torch.float64))

    def expanded(source, target, normals, weight):
        return pose(source.expand(3, 24, 3), target, normals, weight.expand(24))

    repeated = (pair.source.repeat(3, 1, 1), targets, pair.normals.repeat(3, 1, 1), torch.ones(3, 24).double())
    T, to_source, to_target, to_normals, to_weight = pose_and_gradients(expanded, *shared)
    T_all, *to_all = pose_and_gradients(pose, *repeated)
    assert_close(T, T_all, rtol=0, atol=1e-12)
    assert_close(to_source, to_all[0].sum(0))
    assert_close(to_target, to_all[1])
    assert_close(to_normals, to_all[2].sum(0))
    assert_close(to_weight, to_all[3].sum().reshape(1), rtol=0, atol=1e-10)


def test_importing_prints_nothing_and_changes_no_global():
    script = """
import random, numpy, torch
def state():
    return (torch.get_default_dtype(), torch.get_num_threads(), torch.get_num_interop_threads(), torch.initial_seed(),
            torch.is_grad_enabled(), torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state()),
            torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision(), numpy.geterr(),
            torch.are_deterministic_algorithms_enabled(), torch.get_default_device())
before = state()
import p2plane
assert state() == before
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
