"""Our weights files: safetensors, with all that is needed to use them again in the header.

No code runs from such a file. The header holds the name of the network, its settings, and whatever was noted about its
training: data, protocol, metrics.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import nn

from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.fit import check_fit, fit_weights
from p2plane.networks.registry import CONFIGS, MODELS

FORMAT = "p2plane-1"
SUFFIX = ".safetensors"
SHIPPED = Path(__file__).parents[1] / "weights"


def save_model(path: str | os.PathLike, model: nn.Module, notes: Mapping[str, Any] | None = None) -> None:
    """Write a network with its settings; an older file of that name stays until the new one is complete.

    Args:
        path: should end with ``.safetensors``.
        model: one of `MODELS`.
        notes: anything JSON can hold: the data protocol, the metrics, the commit.
    """
    from safetensors.torch import save

    names = [name for name, kind in MODELS.items() if type(model) is kind]
    if not names:
        raise ValueError(f"model must be one of {tuple(MODELS)}, got {type(model).__name__}")
    header = {
        "format": FORMAT,
        "model": names[0],
        "config": json.dumps(asdict(model.config)),  # type: ignore[call-overload, arg-type]
        "notes": json.dumps(dict(notes or {})),
    }
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    tensors = {name: tensor.contiguous().cpu() for name, tensor in model.state_dict().items()}
    try:
        with temporary.open("xb") as file:  # not save_file, whose errors of a full disk are not OSErrors
            file.write(save(tensors, metadata=header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def load_model(path_or_name: str | os.PathLike, **changes: Any) -> RegistrationNetwork:
    """The network of a weights file, in evaluation mode; after `train` it goes on learning from there.

    Args:
        path_or_name: a file that `save_model` wrote, or the name of one that comes with p2plane (`shipped_models`).
        changes: settings that should differ from those in the file: ``test_rounds=6``, or ``head="plane"``, which
            leaves the other settings of the head as they are; a mapping or a `HeadConfig` sets several of them.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = find_model(path_or_name)
    header = read_header(path)
    kind = MODELS[header["model"]]
    try:
        config = config_from(CONFIGS[header["model"]], _changed(header["config"], changes))
        with torch.device("meta"):  # settings may ask for any width: no memory is taken before the weights are seen
            outline = kind(config)
    except (TypeError, ValueError, RuntimeError) as error:  # torch's own, too
        raise ValueError(f"{path} must hold settings of {header['model']} that can be built, but {error}") from error
    try:
        weights = load_file(path)
        check_fit(outline, weights)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} must hold the weights of {header['model']}, but {error}") from error
    model = kind(config)
    fit_weights(model, weights)
    return model.eval()


def read_header(path_or_name: str | os.PathLike) -> dict[str, Any]:
    """The header of a weights file: "model", "config" and "notes"; the argument as in `load_model`."""
    from safetensors import SafetensorError, safe_open

    path = find_model(path_or_name)
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} must be a safetensors file, but {error}") from error
    if header.get("format") != FORMAT or header.get("model") not in MODELS:
        raise ValueError(f"{path} must have the format {FORMAT} and a model of {tuple(MODELS)}, got {header}")
    try:
        return {"model": header["model"], **{name: dict(json.loads(header[name])) for name in ("config", "notes")}}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must have settings and notes in JSON, but {error!r}") from error


def find_model(path_or_name: str | os.PathLike) -> Path:
    """The weights file of that path, or else of that name among those that come with p2plane."""
    path, shipped = Path(path_or_name), shipped_models()
    if path.is_file():
        return path
    if str(path_or_name) in shipped:
        return shipped[str(path_or_name)]
    names = f"those that come with p2plane are {', '.join(shipped)}" if shipped else "none comes with p2plane"
    raise FileNotFoundError(f"there is no weights file {path_or_name}; by name, {names}")


def shipped_models() -> dict[str, Path]:
    """The weights files that come with p2plane, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob(f"*{SUFFIX}"))}


def config_from(kind: Any, values: Mapping[str, Any]) -> Any:
    """Settings of a dataclass from a mapping, nested ones too; unknown names raise."""
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"{kind.__name__} must have settings out of {sorted(hints)}, got {unknown[0]!r}")
    return kind(**{name: _value(hints[name], value) for name, value in values.items()})


def _changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some of them changed, nested ones too; a plain value there is that of the same name inside."""
    changed = dict(config)
    for name, value in changes.items():
        if isinstance(config.get(name), Mapping) and not is_dataclass(value):
            value = {**config[name], **(value if isinstance(value, Mapping) else {name: value})}
        changed[name] = value
    return changed


def _value(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(value, Mapping):
        return config_from(kind, value)
    return tuple(value) if isinstance(value, list) else value
