"""How networks are trained: `load_settings` and `train`."""

from p2plane.training.config import TrainSettings, load_settings
from p2plane.training.run import TrainResult, train

__all__ = ["TrainResult", "TrainSettings", "load_settings", "train"]
