"""The alignment of every head with every eigenvector, and its share of the gain of that component."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as PlainFigure

from iclflow.errors import BadInput
from iclflow.figures.style import BLACK, Figure, figure_of, styled

if TYPE_CHECKING:
    import iclflow.probing.result

__all__ = ["probe_alignment"]


def probe_alignment(probe: "iclflow.probing.result.Probe", *, ax: Axes | None = None) -> PlainFigure:
    """Draw a map of heads by components: colours are alignments, numbers are shares of the gain.

    Args:
        probe: a probe of a model with heads.
        ax: axes to draw on; by default those of a new figure.

    Returns:
        The figure.

    Raises:
        BadInput: if the subject of the probe has no heads.
    """
    if probe.heads is None:
        raise BadInput("figure: a function has no heads to draw")
    with styled():
        heads = probe.heads
        count, dim = heads.alignment.shape
        if ax is None:
            ax = Figure(figsize=(1.8 + 0.55 * dim, 1.3 + 0.36 * min(count, 20))).add_subplot()
        image = ax.imshow(heads.alignment, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        if count <= 20:
            for h, d in np.argwhere(np.abs(heads.share) >= 0.005):
                dark = abs(heads.alignment[h, d]) > 0.6
                colour = "w" if dark else BLACK
                ax.text(d, h, f"{heads.share[h, d]:.2f}", ha="center", va="center", fontsize=8, color=colour)
        ax.set(xlabel="component", ylabel="head", xticks=range(dim), title="alignment (share of gain)")
        ax.set_xticklabels([str(d + 1) for d in range(dim)])
        if count <= 20:
            ax.set_yticks(range(count), [str(h + 1) for h in range(count)])
        figure = figure_of(ax)
        figure.colorbar(image, ax=ax, shrink=0.9)
        return figure
