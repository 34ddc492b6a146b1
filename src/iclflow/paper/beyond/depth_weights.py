"""Which layer learns which direction, and learns it again.

Two layers of separate key and query of rank one, label blocks trained by descent on the population. Each small map is
the matrix of one layer, the sum of its heads, in the principal axes of the tokens and relative to the strength at which
a single layer would learn an axis; a column is one plateau, shortly before its end. Below each map of the run stands
that of the forecast, made from the initial weights alone. Every layer races for every direction on the first staircase,
so a direction first appears in one layer only. While the network waits, layers may exchange what they hold: states that
do so have nearly the same loss, and the learned heads drift through them. On the second staircase every direction is
learned by the other layer as well. In the end both layers hold all directions, one with shorter and one with longer
steps: two steps of preconditioned gradient descent.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

import iclflow as icl
from iclflow.claims.depth_runs import layer_matrices, small
from iclflow.data.spectrum import covariances
from iclflow.figures.style import WIDTH, letters, styled
from iclflow.models.initial import initial_weights
from iclflow.paper.beyond.depth_context import crossings, rate
from iclflow.paper.drawn import Drawn, Gap
from iclflow.theory.depth import contexts, ladder
from iclflow.theory.landscape import directions

__all__ = ["draw"]

SOURCE = "beyond the paper"
TASK, FAST_TASK = icl.Task(dim=3, context=31), icl.Task(dim=1, context=20)
INIT, CONTEXTS, RECORDS, LATE = 1e-2, 48, 2000, 0.9


def draw(fast: bool = False) -> Drawn:
    task, model = FAST_TASK if fast else TASK, icl.Separate(heads=2 if fast else 4, layers=2)
    weights = initial_weights(model, task, "entry", INIT, 0, covariances(task))
    forecast = ladder(contexts(task, layers=2), *small(weights, task))
    run = icl.train(
        task, model, weights=weights, freeze_vectors=True, gram_samples=CONTEXTS * task.dim**2, lr=rate(task),
        steps=int(1.3 * forecast.drop_times[-1] / (2 * rate(task))), records=RECORDS, progress=False,
    )  # fmt: skip
    seen = np.array([*crossings(run, forecast.levels), run.time.values[-1]])
    late = seen[:-1] + LATE * np.diff(seen)
    kept, snapshots = run.weights["time"].values, list(run.snapshots())
    found = [relative(layer_matrices(snapshots[int(np.argmin(np.abs(kept - t)))], task), task) for t in late]
    expected = [relative(matrices, task) for matrices in forecast.matrices]
    columns = list(zip(late, forecast.levels[1:], found, expected, strict=True))
    with styled():
        figure = Figure(figsize=(WIDTH, 0.7 + 0.62 * WIDTH))
        grid = figure.subplots(4, len(columns), squeeze=False)
        for column, (_, level, measured, theory) in enumerate(columns):
            for layer in range(2):
                for row, A in ((2 * layer, measured[layer]), (2 * layer + 1, theory[layer])):
                    shown = grid[row, column].imshow(A, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
                    grid[row, column].set(xticks=[], yticks=[])
                    grid[row, column].spines[:].set_visible(True)
            grid[0, column].set_title(f"{level:.2g}", fontsize=10)
        for row, name in enumerate(("layer 1", "forecast", "layer 2", "forecast")):
            grid[row, 0].set_ylabel(name, fontsize=10)
        letters(*grid[0])
        figure.suptitle("level of the plateau", fontsize=10)
        figure.colorbar(shown, ax=grid.ravel().tolist(), shrink=0.7, label="share of one layer's strength")
    rows = [
        {
            "plateau": number, "time": time, "level": level, "layer": layer + 1, "row": a + 1, "column": b + 1,
            "share": measured[layer, a, b], "theory": theory[layer, a, b],
        }
        for number, (time, level, measured, theory) in enumerate(columns, 1)
        for layer, a, b in np.ndindex(measured.shape)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    apart = (table.share - table.theory).abs()
    gaps = (
        Gap("mean distance of a layer's share from the forecast's, over all maps", float(apart.mean())),
        Gap("largest distance of a layer's share from the forecast's, over all maps", float(apart.max())),
    )
    return Drawn(figure, {"shares": table}, gaps, {"two layers": run.experiment})


def relative(matrices: Float[np.ndarray, "L D D"], task: icl.Task) -> Float[np.ndarray, "L D D"]:
    """Matrices relative to the strength at which one layer alone would learn each axis."""
    strength = directions(task).strength
    return matrices / np.sqrt(np.outer(strength, strength))
