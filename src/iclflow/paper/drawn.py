"""What drawing a figure leaves: the picture, its numbers, what was run, and how far theory is from it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from iclflow.experiment import Experiment
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
    figure: Figure
    numbers: dict[str, pd.DataFrame]  # what is drawn, a table a file
    gaps: tuple[Gap, ...]  # the headline first
    experiments: dict[str, Experiment]  # every run, by the name it has in the picture


def few(length: int, count: int = 500) -> Int[np.ndarray, " k"]:
    """Indices that draw a curve as well as all of them would, on a linear or a logarithmic axis."""
    return np.union1d(even_places(length, count), (np.geomspace(1, length, count) - 1).round().astype(int))


def stacked(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables below each other, the first column saying which is which."""
    return pd.concat(parts, names=["curve"]).reset_index(level="curve").reset_index(drop=True)


def loss_table(run: Run, theory: Float[np.ndarray, " T"] | None = None) -> pd.DataFrame:
    """Time and losses of one seed at a few hundred times, theory beside them."""
    kept = few(len(run.time))
    columns = {"step": run.curves["step"].values[kept], "time": run.time.values[kept]}
    columns |= {str(name): array.values[kept] for name, array in run.curves.items()}
    if theory is not None:
        columns["theory"] = theory[kept]
    return pd.DataFrame(columns)
