"""`register` as one method among the others, so that it can be measured like them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from p2plane.classical.pairwise import Found, PairwiseMethod
from p2plane.classical.scales import Surface
from p2plane.data.cloud import Cloud
from p2plane.registration.pipeline import register


@dataclass(frozen=True)
class RegisterConfig:
    """Settings of `Register`."""

    method: str = "auto"
    """Who proposes poses, as in `register`."""


class Register(PairwiseMethod):
    """The whole pipeline on one pair after the other; `converged` says whether it is confident."""

    needs_normals = (True, True)

    def __init__(self, config: RegisterConfig | None = None) -> None:
        self.config = config or RegisterConfig()

    def find(self, source: Surface, target: Surface, generator: torch.Generator | None) -> Found:
        """The pose that `register` finds."""
        clouds = [Cloud(each.points, each.normals) for each in (source, target)]
        seed = 0 if generator is None else int(torch.randint(2**31, (), generator=generator))
        result = register(*clouds, method=self.config.method, seed=seed)
        return Found(result.T_target_source, converged=result.confident)
