"""Theory: pure functions of the task and the initial weights; nothing here knows the engines.

Start at `landscape`: the population loss and the drive and curvature of its directions, which all the rest builds on.
"""

from iclflow.theory import algorithm, decay, in_weight, lazy, merged, separate, single_mode, softmax, white
from iclflow.theory.landscape import Directions, Landscape, directions, landscape, minimum, plateau_losses
from iclflow.theory.staircase import Staircase, staircase

__all__ = [
    "Directions",
    "Landscape",
    "Staircase",
    "algorithm",
    "decay",
    "directions",
    "in_weight",
    "landscape",
    "lazy",
    "merged",
    "minimum",
    "plateau_losses",
    "separate",
    "single_mode",
    "softmax",
    "staircase",
    "white",
]
