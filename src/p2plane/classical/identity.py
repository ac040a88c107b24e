"""The method that does nothing, which tells how hard a test set is."""

from __future__ import annotations

import torch

from p2plane.classical.pairwise import Found, PairwiseMethod
from p2plane.classical.scales import Surface


class Identity(PairwiseMethod):
    """Leaves the source where it is."""

    def find(self, source: Surface, target: Surface, generator: torch.Generator | None) -> Found:
        """The identity."""
        return Found(torch.eye(4), iterations=0)
