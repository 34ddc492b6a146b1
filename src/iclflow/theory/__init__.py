"""Theory: pure functions of the task and the initial weights; nothing here knows the engines."""

from iclflow.theory.landscape import Directions, Landscape, directions, landscape, minimum, plateau_losses

__all__ = ["Directions", "Landscape", "directions", "landscape", "minimum", "plateau_losses"]
