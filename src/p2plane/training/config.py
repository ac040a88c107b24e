"""All settings of a training, and how they come out of a file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.registry import CONFIGS, MODELS
from p2plane.networks.weights import read_header
from p2plane.solve.inputs import one_of
from p2plane.training.data import DataSettings
from p2plane.training.files import find_config, merged, read_config, with_changes
from p2plane.training.losses import LOSSES
from p2plane.training.schedule import OptimizerSettings, ScheduleSettings
from p2plane.training.settings import NONE, fill, plain, unknown


@dataclass(frozen=True)
class BudgetSettings:
    """When to stop: at whatever comes first. One of them must be there."""

    epochs: int | None = None
    steps: int | None = None
    minutes: float | None = None
    """Of training and validation, over all resumed runs."""

    def __post_init__(self) -> None:
        given = [value for value in (self.epochs, self.steps, self.minutes) if value is not None]
        if not given or min(given) <= 0:
            raise ValueError(f"there must be positive epochs, steps or minutes, got {self}")

    def total_steps(self, steps_per_epoch: int) -> int | None:
        """The most steps; None where minutes alone are given."""
        limits = [] if self.steps is None else [self.steps]
        limits += [] if self.epochs is None else [self.epochs * steps_per_epoch]
        return min(limits, default=None)


@dataclass(frozen=True)
class ValidationSettings:
    """How the network is measured while it learns; the best one is kept."""

    pairs: int = 200
    """Always the same ones, of shapes that are not trained on."""
    every: int | None = None
    """Steps; without, an epoch."""
    held_out: float = 0.05
    """The share of the training shapes that they are made of."""
    by: str = "angle_mean_deg"
    """The measure that is to be small."""

    def __post_init__(self) -> None:
        if self.pairs < 1 or (self.every is not None and self.every < 1):
            raise ValueError(f"pairs and every must be at least 1, got {self.pairs} and {self.every}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}")
        one_of("by", self.by, MEASURES)


MEASURES = (
    "angle_mean_deg",
    "angle_median_deg",
    "angle_rms_deg",
    "length_mean",
    "length_rms",
    "rotation_mae_deg",
    "rotation_rmse_deg",
    "translation_mae",
    "translation_rmse",
)


@dataclass(frozen=True)
class CheckpointSettings:
    """How often the state is saved, by whatever comes first; the last two are kept."""

    minutes: float = 5.0
    steps: int | None = None

    def __post_init__(self) -> None:
        if not self.minutes > 0 or (self.steps is not None and self.steps < 1):
            raise ValueError(f"minutes and steps must be positive, got {self.minutes} and {self.steps}")


@dataclass(frozen=True)
class ModelSettings:
    """A network of the registry, and its own settings."""

    name: str
    config: Any

    def build(self) -> RegistrationNetwork:
        """The network, with random weights."""
        return MODELS[self.name](self.config)  # type: ignore[call-arg, arg-type]


@dataclass(frozen=True)
class LossSettings:
    """A loss of the registry, and its own settings."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Callable[..., Tensor]:
        """The function of an alignment and a batch."""
        return partial(LOSSES[self.name], **self.options)


@dataclass(frozen=True)
class TrainSettings:
    """Everything that decides what comes out of a training."""

    model: ModelSettings
    loss: LossSettings
    data: tuple[DataSettings, ...]
    budget: BudgetSettings
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    seed: int = 0
    batch_size: int = 8
    """Pairs of a step, over all processes."""
    gradient_clip: float | None = None
    """The longest gradient; a longer one is shortened to it."""
    init: str | None = None
    """A weights file to start from, whose settings of the network hold where the config says nothing else; random
    weights without."""
    workers: int = 1
    """Processes that prepare pairs, for each training process; 0 to prepare them in between."""
    threads: int | None = None
    """Of torch in each training process; its own choice without."""
    devices: int = 1
    """Training processes on each machine; more than one train by DDP."""
    nodes: int = 1
    """Machines; `torchrun` starts the processes on each."""
    accelerator: str = "auto"
    """"auto", "cpu" or "gpu"."""
    strategy: str = "auto"
    """Of Lightning; "auto" is DDP with several devices."""
    precision: str = "full"
    """"full", "bf16-mixed", "16-mixed", or "mixed" for the one of these that the device is made for; full on a CPU."""
    log_every: int = 20
    """Steps between two rows of the log."""

    def __post_init__(self) -> None:
        for name, least in (
            ("batch_size", 1),
            ("devices", 1),
            ("nodes", 1),
            ("workers", 0),
            ("log_every", 1),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.seed >= 2**32:
            raise ValueError(f"seed must be below 2^32, got {self.seed}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        if self.gradient_clip is not None and not self.gradient_clip > 0:
            raise ValueError(f"gradient_clip must be positive, got {self.gradient_clip}")
        processes = self.devices * self.nodes
        if self.batch_size % processes:
            raise ValueError(
                f"batch_size must be a multiple of devices times nodes, {processes}, got {self.batch_size}"
            )
        one_of("accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("precision", self.precision, ("full", "mixed", "bf16-mixed", "16-mixed"))

    def values(self) -> dict[str, Any]:
        """The tables of a file that says the same; reading it gives these settings again."""
        values = plain(self)
        values["model"] = {"name": self.model.name, **plain(self.model.config)}
        values["loss"] = {"name": self.loss.name, **self.loss.options}
        values["data"] = [each.values() for each in self.data]
        return values


def load_settings(config: str | os.PathLike, changes: Iterable[str] = ()) -> TrainSettings:
    """The settings of a config: a path or the name of a packaged one, with changes such as "optimizer.lr=1e-3"."""
    return settings_from(with_changes(read_config(find_config(config)), changes))


def settings_from(values: Mapping[str, Any]) -> TrainSettings:
    """Settings from the tables of a file."""
    values = _with_settings_of_weights(values)
    for name in ("model", "loss", "data", "budget"):
        if name not in values:
            raise ValueError(f"a config must have {name}, got {', '.join(values) or 'nothing'}")
    kinds = values["data"] if isinstance(values["data"], list) else [values["data"]]
    if not kinds:
        raise ValueError("data must hold at least one kind of pairs, got none")
    names = ["data"] if len(kinds) == 1 else [f"data.{i}" for i in range(len(kinds))]
    values["data"] = tuple(DataSettings.from_values(each, name) for each, name in zip(kinds, names, strict=True))
    values["model"] = _model(values["model"])
    values["loss"] = _loss(values["loss"])
    return fill(TrainSettings, values)


def _with_settings_of_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """With weights to start from, the network is as their file says, but for what is said otherwise."""
    init = values.get("init", NONE)
    if init in (None, NONE):
        return dict(values)
    if not isinstance(init, str):
        raise ValueError(f"init must be the name of a weights file, got {init!r}")
    header = read_header(init)
    asked = values.get("model", {})
    if isinstance(asked, Mapping) and asked.get("name", header["model"]) != header["model"]:
        raise ValueError(f"init must hold weights of {asked['name']}, got those of {header['model']} in {init}")
    return {**values, "model": merged({"name": header["model"], **header["config"]}, asked)}


def _model(values: Any) -> ModelSettings:
    own = _named(values, "model", MODELS)
    return ModelSettings(own.pop("name"), fill(CONFIGS[values["name"]], own, "model"))


def _loss(values: Any) -> LossSettings:
    own = _named({"name": values} if isinstance(values, str) else values, "loss", LOSSES)
    name = own.pop("name")
    known = [
        each.name for each in inspect.signature(LOSSES[name]).parameters.values() if each.kind == each.KEYWORD_ONLY
    ]
    for option in own:
        if option not in known:
            raise unknown(f"loss.{option}", option, known)
    return LossSettings(name, own)


def _named(values: Any, where: str, registry: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping) or "name" not in values:
        raise ValueError(f"{where} must be a table with a name out of {tuple(registry)}, got {values!r}")
    if values["name"] not in registry:
        raise unknown(f"{where}.name {values['name']!r}", str(values["name"]), registry)
    return dict(values)
