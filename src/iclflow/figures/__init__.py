"""One file a figure; each takes a run and returns a matplotlib figure. Simulation is solid, theory dashed."""

from iclflow.figures.loss_curve import loss_curve

__all__ = ["loss_curve"]
