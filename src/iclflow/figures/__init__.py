"""Figures of runs, sweeps and probes, one per file. Simulation is drawn solid, theory dashed."""

from iclflow.figures.along_axis import along_axis
from iclflow.figures.loss_curve import loss_curve
from iclflow.figures.overlay import overlay
from iclflow.figures.probe_alignment import probe_alignment
from iclflow.figures.probe_distances import probe_distances
from iclflow.figures.probe_gains import probe_gains
from iclflow.figures.seed_bands import seed_bands

__all__ = [
    "along_axis",
    "loss_curve",
    "overlay",
    "probe_alignment",
    "probe_distances",
    "probe_gains",
    "seed_bands",
]
