"""The networks by name, and the dataclasses of their settings."""

from __future__ import annotations

from typing import Any

from p2plane.networks.dcp import DCP, DCPConfig
from p2plane.networks.deepgmr import DeepGMR, DeepGMRConfig
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.pointnetlk import PointNetLK, PointNetLKConfig
from p2plane.networks.prnet import PRNet, PRNetConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.networks.tessera import Tessera, TesseraConfig

MODELS: dict[str, type[RegistrationNetwork]] = {
    "dcp": DCP,
    "prnet": PRNet,
    "rpmnet": RPMNet,
    "deepgmr": DeepGMR,
    "pointnetlk": PointNetLK,
    "tessera": Tessera,
}
"""The networks by name."""

CONFIGS: dict[str, Any] = {
    "dcp": DCPConfig,
    "prnet": PRNetConfig,
    "rpmnet": RPMNetConfig,
    "deepgmr": DeepGMRConfig,
    "pointnetlk": PointNetLKConfig,
    "tessera": TesseraConfig,
}
"""The dataclasses of their settings."""
