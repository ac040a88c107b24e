"""What is evaluated: a weights file, or a method by its name, ready to be called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from p2plane.networks.weights import load_model, read_header
from p2plane.solve.alignment import Alignment
from p2plane.training.files import with_changes

WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Contender:
    """A method and what identifies it."""

    method: Callable[..., Alignment]
    """Called as a network is; see `p2plane.networks.door.RegistrationNetwork.forward`."""
    identity: dict[str, Any]
    """Its name, its settings and, for a network, which weights: what JSON can hold."""

    @property
    def learned(self) -> bool:
        """Whether it is a network, which does better with several pairs at once."""
        return isinstance(self.method, nn.Module)


def open_contender(name: str, changes: Sequence[str]) -> Contender:
    """A weights file (``.safetensors``), or a method of `p2plane methods`.

    Args:
        name: the path or the name.
        changes: settings that should differ from the file's or the method's own, such as "head.head=plane".
    """
    if name.endswith(WEIGHTS):
        return _network(Path(name), changes)
    from p2plane.methods import build_method

    method, settings = build_method(name, with_changes({}, changes))
    return Contender(method, {"method": name, "settings": settings})


def _network(path: Path, changes: Sequence[str]) -> Contender:
    header = read_header(path)
    settings = with_changes(header["config"], changes)
    network = load_model(path, **settings)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    identity = {"method": header["model"], "settings": settings, "weights": path.name, "weights_sha256": digest}
    return Contender(network, identity | {"training": header["notes"]})
