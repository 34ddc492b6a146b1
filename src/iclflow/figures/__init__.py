"""One file a figure; each takes a run and returns a matplotlib figure. Simulation is solid, theory dashed."""

from iclflow.figures.loss_curve import loss_curve
from iclflow.figures.probe_alignment import probe_alignment
from iclflow.figures.probe_distances import probe_distances
from iclflow.figures.probe_gains import probe_gains

__all__ = ["loss_curve", "probe_alignment", "probe_distances", "probe_gains"]
