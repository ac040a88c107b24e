"""How fast a network learns, step by step: the optimiser and its schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from p2plane.solve.inputs import one_of


@dataclass(frozen=True)
class OptimizerSettings:
    """Adam, with weight decay in the gradient (a Tikhonov term), or AdamW, with weight decay beside it."""

    name: str = "adam"
    """"adam" or "adamw"."""
    lr: float = 1e-4
    """The learning rate that the schedule starts from."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    """Added to the root of the second moment."""

    def __post_init__(self) -> None:
        one_of("name", self.name, ("adam", "adamw"))
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr must be positive, got {self.lr}")
        for name in ("weight_decay", "eps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be from 0 to 1, got {self.betas}")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of some parameters."""
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.name]
        return kind(parameters, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rate changes."""

    name: str = "constant"
    """"constant", "step" for a factor every so many epochs, or "cosine" down to `final` at the end of the budget."""
    warmup: int = 0
    """Steps over which the rate grows from nothing at first, with any schedule."""
    every: int = 10
    """Epochs between the steps of "step"."""
    factor: float = 0.5
    """What the rate is multiplied with at each step of "step"."""
    final: float = 0.0
    """The share of the rate that "cosine" ends with."""

    def __post_init__(self) -> None:
        one_of("name", self.name, ("constant", "step", "cosine"))
        for name, least in (("warmup", 0), ("every", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.factor <= 1 or not 0 <= self.final <= 1:
            raise ValueError(f"factor and final must be from 0 to 1, got {self.factor} and {self.final}")

    def factors(self, steps_per_epoch: int, total_steps: int | None) -> Callable[[int], float]:
        """The factor of the learning rate at a step.

        Args:
            steps_per_epoch: for "step".
            total_steps: for "cosine", which needs to know the end.
        """
        if self.name == "cosine" and total_steps is None:
            raise ValueError("schedule cosine must know its end: give budget.steps or budget.epochs")
        return lambda step: self._warm(step) * self._cooled(step, steps_per_epoch, total_steps or 1)

    def _warm(self, step: int) -> float:
        return min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0

    def _cooled(self, step: int, steps_per_epoch: int, total_steps: int) -> float:
        if self.name == "step":
            return self.factor ** (step // steps_per_epoch // self.every)
        if self.name == "cosine":
            share = min(1.0, max(0.0, (step - self.warmup) / max(1, total_steps - self.warmup)))
            return self.final + (1 - self.final) * (1 + math.cos(math.pi * share)) / 2
        return 1.0
