"""Networks as ONNX graphs, from clouds to poses, without any operator for factorizations."""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from p2plane.networks.dcp import DCP
from p2plane.networks.deepgmr import DeepGMR
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.pointnetlk import PointNetLK
from p2plane.networks.prnet import PRNet
from p2plane.networks.rpmnet import RPMNet
from p2plane.networks.tessera import Tessera
from p2plane.solve.basic import basic_operations

if TYPE_CHECKING:
    from p2plane.data.pair import PairBatch

INPUTS = ("source", "target", "source_normals", "target_normals")
OUTPUTS = ("T_target_source", "converged")
OPSET = 18

_REASONS: dict[type, str] = {
    DeepGMR: "its pose is not that of matched pairs, and it has no plane head",
    PointNetLK: "it solves its own equations at every step, and has no plane head",
    Tessera: "it picks tokens one after the other, and searches among poses in a way that depends on what it finds",
}


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike,
    *,
    points: int = 1024,
    target_points: int | None = None,
    batch: int = 1,
) -> Path:
    """Write a network as one ONNX graph; an older file of that name stays until the new one is complete.

    The graph takes float32 `source` (B, N, 3), `target` (B, M, 3), `source_normals` (B, N, 3) and `target_normals`
    (B, M, 3), and gives `T_target_source` (B, 4, 4) and `converged` (B,), as the network does in evaluation. It holds
    sums, products, comparisons and one loop for each search, no decomposition of matrices.

    Args:
        model: a `DCP`, `PRNet` or `RPMNet`.
        path: must end with ``.onnx``, in a folder that exists.
        points: N, the points of a source.
        target_points: M, those of a target; as many where it is not given.
        batch: B, the pairs at once.
    """
    target = _checked_path(path)
    sizes = _checked_sizes(model, points, points if target_points is None else target_points, batch)
    _need("onnx", "onnxscript")
    program = _traced(model, *sizes)
    program.model.metadata_props.update(_notes(model))
    from p2plane.work.files import replacing

    with replacing(target) as temporary:
        program.save(temporary, external_data=False)
    return target


def largest_difference(model: RegistrationNetwork, path: str | os.PathLike, *, pairs: int = 50, seed: int = 0) -> float:
    """The largest difference between entries of the poses that a graph and its network find, on built-in shapes.

    Args:
        model: the network that was exported.
        path: of the graph.
        pairs: how many to try.
        seed: of the pairs.
    """
    _need("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone, not what its optimizer leaves as it is
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    shapes = {each.name: each.shape for each in session.get_inputs()}
    batch, sizes = shapes["source"][0], (shapes["source"][1], shapes["target"][1])
    network = _ready(model)
    worst = 0.0
    for first in range(0, pairs, batch):
        arrays = _cut(_shape_pairs(range(first, first + batch), max(sizes), seed), *sizes)
        with torch.no_grad():
            expected = network(*arrays).T_target_source
        found = session.run(OUTPUTS[:1], {name: each.numpy() for name, each in zip(INPUTS, arrays, strict=True)})[0]
        worst = max(worst, float((torch.from_numpy(found) - expected).abs().max()))
    return worst


def _traced(model: nn.Module, points: int, target_points: int, batch: int) -> Any:
    """The ONNX program."""
    clouds = [
        torch.randn(batch, count, 3, generator=torch.Generator().manual_seed(0)) for count in (points, target_points)
    ]
    arrays = (*clouds, *(normalize(cloud, dim=-1) for cloud in clouds))
    with _quiet_exporter(), basic_operations(), torch.no_grad():
        program = torch.export.export(_Poses(_ready(model)), arrays, strict=False)
        try:
            # As traced: onnxruntime optimizes what it loads, and the exporter would take minutes for several searches.
            return torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=INPUTS,
                output_names=OUTPUTS,
                verbose=False,
                optimize=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise ValueError(f"{type(model).__name__} cannot be exported to ONNX: {reason}") from error


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """It tells of operators of torchvision, and of what it leaves as it is."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx._internal.exporter._registration", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _Poses(nn.Module):
    """A network as a function of tensors."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, source: Tensor, target: Tensor, source_normals: Tensor, target_normals: Tensor
    ) -> tuple[Tensor, Tensor]:
        alignment = self.network(source, target, source_normals, target_normals)
        return alignment.T_target_source, alignment.converged


def _ready(model: nn.Module) -> nn.Module:
    """A copy in float32 on the CPU, in evaluation."""
    return copy.deepcopy(model).float().cpu().eval()


def _checked_path(path: str | os.PathLike) -> Path:
    target = Path(path)
    if target.suffix != ".onnx":
        raise ValueError(f"path must end with .onnx, got {target}")
    if target.is_dir() or not target.parent.is_dir():
        raise ValueError(f"path must name a file in a folder that exists, got {target}")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"path must be in a folder that can be written to, got {target}")
    return target


def _checked_sizes(model: nn.Module, points: int, target_points: int, batch: int) -> tuple[int, int, int]:
    name = type(model).__name__
    for kind, reason in _REASONS.items():
        if isinstance(model, kind):
            raise ValueError(f"{name} cannot be exported to ONNX: {reason}")
    if not isinstance(model, (DCP, PRNet, RPMNet)):
        raise ValueError(f"model must be a DCP, PRNet or RPMNet, got {name}")
    if getattr(model.config, "sample_in_evaluation", False):
        raise ValueError(f"{name} cannot be exported to ONNX: sample_in_evaluation draws its match at random")
    if model.config.head.gradient != "exact":
        raise ValueError(
            f"{name} cannot be exported to ONNX: gradient={model.config.head.gradient!r} takes plain steps; "
            "load it with head={'gradient': 'exact'}"
        )
    for argument, value, least in (
        ("points", points, model.fewest_points),
        ("target_points", target_points, model.fewest_points),
        ("batch", batch, 1),
    ):
        if not isinstance(value, int) or value < max(1, least):
            raise ValueError(f"{argument} must be an integer of at least {max(1, least)}, got {value!r}")
    return points, target_points, batch


def _notes(model: nn.Module) -> dict[str, str]:
    from p2plane import __version__

    config = json.dumps(asdict(model.config))  # type: ignore[call-overload, arg-type]
    return {"p2plane_version": __version__, "p2plane_model": type(model).__name__, "p2plane_config": config}


def _need(*modules: str) -> None:
    import importlib

    if not hasattr(torch, "while_loop"):
        raise ImportError(f"a newer PyTorch is needed for ONNX, with torch.while_loop, got {torch.__version__}")
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{module} is needed for ONNX: pip install 'p2plane[export]' (from a checkout: pip install '.[export]')"
            ) from error


def _shape_pairs(indices: Sequence[int], points: int, seed: int) -> PairBatch:
    from p2plane.data.pair import collate
    from p2plane.data.pairs import PairDataset, PairSettings
    from p2plane.data.synthetic import SyntheticShapes

    settings = PairSettings(points=points, shared=0.5, crop="none", noise=0.01, max_angle_deg=20)
    pairs = PairDataset(SyntheticShapes("test", points=2 * points), settings, seed=seed)
    return collate([pairs[index % len(pairs)] for index in indices])


def _cut(batch: PairBatch, points: int, target_points: int) -> tuple[Tensor, ...]:
    sides = (
        ("source", points),
        ("target", target_points),
        ("source_normals", points),
        ("target_normals", target_points),
    )
    return tuple(getattr(batch, name)[:, :count].float() for name, count in sides)
