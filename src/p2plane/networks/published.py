"""The authors' checkpoints in our networks.

Our parameters have the published names, so there is little to translate: what the files wrap around their weights,
convolutions with kernels of one point, which are matrices here, and constants that we do not store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from p2plane.networks.fit import fit_weights
from p2plane.networks.registry import CONFIGS, MODELS
from p2plane.networks.weights import config_from


@dataclass(frozen=True)
class Published:
    """For which network a file is, and with which settings."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


PUBLISHED = {
    "dcp-v1": Published("dcp", {"pointer": "identity"}),
    "dcp-v2": Published("dcp", {"pointer": "transformer"}),
    "prnet": Published("prnet"),
    "rpmnet": Published("rpmnet"),
    "deepgmr-rri": Published("deepgmr", {"features": "rri"}),
    "deepgmr-xyz": Published("deepgmr", {"features": "xyz"}),
    "pointnetlk": Published("pointnetlk"),
}

WRAPPERS = ("state_dict", "model")  # keys under which a file may keep its weights
PREFIXES = ("module.", "acpnet.")  # of all names, where a network was saved from inside another module
CONSTANTS = ("head.reflect", "head.temperature")  # of DCP and PRNet: diag(1, 1, -1), and a number that is never used


def load_published(name: str, path: str | os.PathLike, **changes: Any) -> nn.Module:
    """The network of an author's file, in evaluation mode.

    Args:
        name: one of `PUBLISHED`.
        path: the file as the authors wrote it. Nothing in it is run.
        changes: settings that should differ, such as ``head=HeadConfig("plane")``.
    """
    if name not in PUBLISHED:
        raise ValueError(f"name must be one of {tuple(PUBLISHED)}, got {name!r}")
    published = PUBLISHED[name]
    config = config_from(CONFIGS[published.model], {**published.settings, **changes})
    network = MODELS[published.model](config)
    import_published(network, read_published(path))
    return network.eval()


def read_published(path: str | os.PathLike) -> dict[str, Any]:
    """What a file of PyTorch holds, if it is a dictionary of plain values; other objects are refused, not run."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no weights file {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a broken file leads to
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} must be a PyTorch file of plain weights, but: {reason}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary of weights, got {type(content).__name__}")
    return content


def import_published(network: nn.Module, weights: Mapping[str, Any]) -> None:
    """Give a network the authors' weights; nothing is changed unless all of them fit.

    Args:
        network: one of ours, with the settings of the file.
        weights: from names to tensors as published, wrapped or not. Counters of batches may be missing, as in files of
            old versions of PyTorch.
    """
    fit_weights(network, {name: value for name, value in unwrapped(weights).items() if name not in CONSTANTS})


def unwrapped(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights themselves, out of the wrappers in which files keep them."""
    for key in WRAPPERS:
        if isinstance(weights.get(key), Mapping):
            return unwrapped(weights[key])
    for prefix in PREFIXES:
        if weights and all(str(name).startswith(prefix) for name in weights):
            return unwrapped({name.removeprefix(prefix): value for name, value in weights.items()})
    return weights
