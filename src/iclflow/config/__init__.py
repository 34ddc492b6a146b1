"""Records of what to do, which refuse bad values at once. Nothing here imports JAX."""

from iclflow.config.task import Task
from iclflow.config.training import Training

__all__ = ["Task", "Training"]
