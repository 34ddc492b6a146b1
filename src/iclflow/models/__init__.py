"""What is trained: one file per model, each a record of settings with the methods of `base.Model`."""

from iclflow.models.base import Model, Weights
from iclflow.models.merged import Merged
from iclflow.models.mlp import MLP
from iclflow.models.separate import Separate

__all__ = ["MLP", "Merged", "Model", "Separate", "Weights"]
