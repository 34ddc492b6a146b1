"""What drawing a figure returns: the picture, its numbers, its experiments, and how far theory is from simulation."""

import io
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from iclflow.experiment import Experiment
from iclflow.models import Weights
from iclflow.results.run import Run
from iclflow.system.thinning import even_places

__all__ = ["Drawn", "Gap", "few", "loss_table", "stacked"]


@dataclass(frozen=True)
class Gap:
    """A measured distance between theory and simulation."""

    what: str
    measured: float

    def __str__(self) -> str:
        return f"{self.what}: {self.measured:.2g}"


@dataclass(frozen=True)
class Drawn:
    """A figure with everything that is written beside it."""

    figure: Figure
    numbers: dict[str, pd.DataFrame]  # what is drawn, one table per file
    gaps: tuple[Gap, ...]  # the most important one first
    experiments: dict[str, Experiment]  # every run, by its name in the picture
    weights: dict[str, Weights] = field(default_factory=dict)  # initial weights that the figure itself sets

    def _repr_png_(self) -> bytes:
        """The figure, for notebooks."""
        picture = io.BytesIO()
        self.figure.savefig(picture, format="png")
        return picture.getvalue()


def few(length: int, count: int = 500) -> Int[np.ndarray, " k"]:
    """Indices that are enough to draw a curve on a linear or a logarithmic axis."""
    return np.union1d(even_places(length, count), (np.geomspace(1, length, count) - 1).round().astype(int))


def stacked(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The tables one below the other, with their names in the first column."""
    return pd.concat(parts, names=["curve"]).reset_index(level="curve").reset_index(drop=True)


def loss_table(run: Run, theory: Float[np.ndarray, " T"] | None = None) -> pd.DataFrame:
    """Times and losses of one seed at a few hundred steps, with theory beside them."""
    kept = few(len(run.time))
    columns = {"step": run.curves["step"].values[kept], "time": run.time.values[kept]}
    columns |= {str(name): array.values[kept] for name, array in run.curves.items()}
    if theory is not None:
        columns["theory"] = theory[kept]
    return pd.DataFrame(columns)
