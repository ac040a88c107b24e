"""All methods by name, for `p2plane evaluate`, `p2plane register` and whoever compares them.

A method is called like a network: ``method(source, target, source_normals, target_normals, source_mask=...,
target_mask=..., generator=...)`` with clouds (B, N, 3) and (B, M, 3), and returns an `Alignment`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from p2plane.classical.goicp import GoICP, GoICPConfig
from p2plane.classical.icp import icp
from p2plane.classical.identity import Identity
from p2plane.classical.open3d import FGR, RANSAC, FGRConfig, RANSACConfig, import_open3d
from p2plane.networks.registry import MODELS
from p2plane.networks.weights import config_from, load_model, read_header, shipped_models
from p2plane.registration.method import Register, RegisterConfig
from p2plane.solve.alignment import Alignment

WEIGHTS = ".safetensors"

Registrar = Callable[..., Alignment]
Builder = Callable[[Mapping[str, Any]], tuple[Registrar, dict[str, Any]]]


@dataclass(frozen=True)
class Method:
    """A way to register clouds that needs no training."""

    name: str
    description: str
    """One line."""
    build: Builder
    """The method with some settings, and all of its settings; unknown ones raise a ValueError."""
    extra: str | None = None
    """The extra of p2plane that it needs."""

    def missing(self) -> str | None:
        """Why it cannot be used here, and the remedy; None where it can."""
        if self.extra == "open3d":
            try:
                import_open3d()
            except ImportError as error:
                return str(error)
        return None


def _configured(kind: Callable[[Any], Registrar], config: Any) -> Builder:
    """Builds a method from the dataclass of its settings."""

    def build(settings: Mapping[str, Any]) -> tuple[Registrar, dict[str, Any]]:
        filled = config_from(config, settings)
        return kind(filled), asdict(filled)

    return build


def _icp(distance: str) -> Builder:
    """Builds `icp` from its own keywords, but for those that belong to a call."""

    def build(settings: Mapping[str, Any]) -> tuple[Registrar, dict[str, Any]]:
        parameters = inspect.signature(icp).parameters.values()
        of_a_call = ("initial", "source_mask", "target_mask", "generator")
        defaults = {
            each.name: each.default
            for each in parameters
            if each.kind is each.KEYWORD_ONLY and each.name not in of_a_call
        } | {"distance": distance}
        unknown = sorted(set(settings) - set(defaults))
        if unknown:
            raise ValueError(f"icp must have settings out of {sorted(defaults)}, got {unknown[0]!r}")
        filled = defaults | dict(settings)
        return partial(icp, **filled), filled

    return build


def _identity(settings: Mapping[str, Any]) -> tuple[Registrar, dict[str, Any]]:
    if settings:
        raise ValueError(f"identity must have no settings, got {sorted(settings)[0]!r}")
    return Identity(), {}


_ALL = (
    Method("identity", "leaves the source where it is: what every other method must beat", _identity),
    Method("icp", "iterative closest points, point to point, from the identity", _icp("point")),
    Method("icp-plane", "iterative closest points, point to plane, from the identity", _icp("plane")),
    Method(
        "go-icp", "point to point, optimal over all rotations, by branch and bound", _configured(GoICP, GoICPConfig)
    ),
    Method("fgr", "fast global registration with FPFH features", _configured(FGR, FGRConfig), "open3d"),
    Method(
        "ransac",
        "RANSAC over FPFH features, 10,000 iterations, and point-to-plane refinement",
        _configured(RANSAC, RANSACConfig),
        "open3d",
    ),
    Method(
        "register",
        "a sweep over all rotations, robust point-to-plane refinement from both sides, and a check",
        _configured(Register, RegisterConfig),
    ),
)

METHODS: dict[str, Method] = {each.name: each for each in _ALL}
"""The methods by name, but for networks."""


def method(name: str | os.PathLike, **settings: Any) -> Registrar:
    """A method that is ready to be called.

    Args:
        name: a key of `METHODS`, the path of a network's weights file (``.safetensors``), or the name of one that comes
            with p2plane.
        settings: that should differ from the method's own, or from those in the weights file.
    """
    return build_method(name, settings)[0]


def build_method(name: str | os.PathLike, settings: Mapping[str, Any]) -> tuple[Registrar, dict[str, Any]]:
    """As `method`, and all of the settings it has then."""
    path = os.fspath(name)
    if is_model(path):
        return load_model(path, **settings), read_header(path)["config"] | dict(settings)
    require(path)
    return METHODS[path].build(settings)


def require(name: str) -> None:
    """Refuse a name that is unknown (ValueError), or a method that cannot be used here (ImportError, the remedy)."""
    if is_model(name):
        read_header(name)
        return
    if name in MODELS:
        raise ValueError(f"{name} is a network and needs its weights: name must be the path of a {WEIGHTS} file")
    if name not in METHODS:
        raise ValueError(f"name must be one of {tuple(METHODS)} or the path of a {WEIGHTS} file, got {name!r}")
    reason = METHODS[name].missing()
    if reason is not None:
        raise ImportError(reason)


def is_model(name: str) -> bool:
    """Whether a method is a network with its weights, a file or one that comes with p2plane."""
    return name.endswith(WEIGHTS) or name in shipped_models()


def available() -> dict[str, str | None]:
    """For each method, why it cannot be used here, and the remedy; None where it can."""
    return {name: each.missing() for name, each in METHODS.items()}
