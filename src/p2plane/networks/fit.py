"""Weights by name into a network: all of them fit, or none is changed and each that does not is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def fit_weights(network: nn.Module, weights: Mapping[str, Any]) -> None:
    """Give a network its weights.

    Args:
        network: one of ours.
        weights: from its names to tensors; those of convolutions with kernels of one point may be matrices. Counters of
            batches may be missing, as in files of old versions of PyTorch.
    """
    check_fit(network, weights)
    ours = network.state_dict()
    shared = {name: weights[name].reshape(each.shape) for name, each in ours.items() if name in weights}
    network.load_state_dict(shared, strict=False)


def check_fit(network: nn.Module, weights: Mapping[str, Any]) -> None:
    """Raise a ValueError that names what does not fit; arguments as in `fit_weights`.

    The values of the network are not looked at: it may be on the device "meta", where a network of any size is free.
    """
    ours = network.state_dict()
    missing = [name for name in ours if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in ours]
    shared = {name: weights[name] for name in ours if name in weights}
    misshapen = [
        f"{name} {_shape(value)} instead of {_shape(ours[name])}"
        for name, value in shared.items()
        if not isinstance(value, Tensor) or _without_ones(value) != _without_ones(ours[name])
    ]
    if missing or unexpected or misshapen:
        problems = (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        listed = "; ".join(f"{len(names)} {kind}: {_first_few(names)}" for kind, names in problems if names)
        raise ValueError(f"weights must fit {type(network).__name__}, but {listed}")


def _without_ones(tensor: Tensor) -> tuple[int, ...]:
    """The shape up to its trailing ones: (64, 3, 1) of a convolution is (64, 3)."""
    shape = tuple(tensor.shape)
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def _first_few(names: list[str], count: int = 5) -> str:
    return ", ".join(map(str, names[:count])) + (", ..." if len(names) > count else "")
